"""The FX graphs that dynamo captures from a model, and where and why it breaks off between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

NO_REASON = "this version of torch does not say why"
_EXPLANATION = "Explanation:"
_BRANCHES = ("generic_jump", "Data-dependent branching")
"""How dynamo's versions begin the reason of a branch that it cannot take."""

Backend = Callable[[GraphModule, list[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Break:
    """Where dynamo broke off: why, in one line, and at which line of code where it is told."""

    reason: str
    place: str | None


@dataclass(frozen=True)
class Captured:
    """The graphs of one pass in the order of their capture, and what broke it into pieces.

    `breaks` are those at which a graph ended, then those before which there was nothing to keep.
    """

    graphs: tuple[GraphModule, ...]
    breaks: tuple[Break, ...]

    @property
    def graph_breaks(self) -> int:
        """How often one graph ended and another began, counted as torch._dynamo.explain does."""
        return max(len(self.graphs) - 1, 0)

    @property
    def why(self) -> str:
        """Why the pass is not one graph, in one line."""
        return "; ".join(self.reasons) or NO_REASON

    @property
    def reasons(self) -> tuple[str, ...]:
        """What broke the pass, each reason once."""
        return tuple(dict.fromkeys(each.reason for each in self.breaks))

    def counted(self) -> Counted:
        """Return what can be told of the graphs, without the graphs and the weights they hold."""
        return Counted(len(self.graphs), self.graph_breaks, self.reasons, self.why)


@dataclass(frozen=True)
class Counted:
    """How many graphs one pass is, what broke it, and why it is not one, in one line."""

    graphs: int
    graph_breaks: int
    reasons: tuple[str, ...]
    why: str


def capture_graphs(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[[GraphModule, tuple[Any, ...]], Any] | None = None,
) -> Captured:
    """Run one pass under dynamo and keep the graphs that it captures, in a fresh state.

    `run` runs a graph on its inputs in place of the graph's own code. Whatever the module raises
    is raised here too.
    """
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        if run is None:
            return graph.forward
        return lambda *inputs: run(graph, inputs)

    told, refused = _counted("graph_break"), _counted("unimplemented")
    torch.compiler.reset()
    told.clear()
    refused.clear()
    try:
        compiled = torch.compile(module, backend=backend)
        with torch.no_grad():
            compiled(*args, **kwargs)
        ended = [found for graph in graphs if (found := _break_of(graph)) is not None]
        seen = {each.reason for each in ended}
        others = [reason for reason in map(in_short, told) if reason not in seen]
        if not (graphs or others):
            others = list(map(in_short, refused))
    finally:
        torch.compiler.reset()
    return Captured(tuple(graphs), (*ended, *(Break(reason, None) for reason in others)))


def _break_of(graph: GraphModule) -> Break | None:
    """Return the break at which a graph ended; None where the code ended with it.

    What dynamo hangs on a graph is not documented: where it is missing, no reason is told.
    """
    ended = getattr(graph, "compile_subgraph_reason", None)
    if not getattr(ended, "graph_break", False):
        return None
    frames = getattr(ended, "user_stack", None) or [None]
    frame = frames[-1]
    place = None if frame is None else f"{frame.filename}:{frame.lineno} in {frame.name}"
    return Break(in_short(str(getattr(ended, "reason", NO_REASON))), place)


def _counted(what: str) -> dict[str, int]:
    """Return a count that dynamo keeps by reason; where this torch has none, an empty one."""
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return {}
    counted: dict[str, int] = counters[what]
    return counted


def in_short(reason: str) -> str:
    """Return a reason in one line: its title and, where dynamo gives one, its explanation."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if not lines:
        return NO_REASON
    if lines[0].startswith(_BRANCHES):
        return f"a branch hangs on a tensor's value ({lines[0]})"
    explained = [line for line in lines[1:] if line.startswith(_EXPLANATION)]
    return ": ".join([lines[0], *(line.removeprefix(_EXPLANATION).strip() for line in explained)])
