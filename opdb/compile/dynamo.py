"""The FX graphs that dynamo captures from a model, and where and why it breaks off between them."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from opdb.compile.switches import check_works
from opdb.errors import EXPLANATION

NO_REASON = "dynamo does not say why"
PASSES = 20
"""Passes after which a model that still captures something is taken to do so in every pass."""
_TOO_OFTEN = re.compile(r"recompile.limit|cache_size_limit")
"""Matches dynamo's reason for a function that it compiled again and again and gave up."""
_WARNING = ("torch._dynamo", "torch.utils.cpp_extension")
"""Loggers that warn of graph breaks, of recompiling, and, without a GPU, of the lack of one."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Matches the address of an object in a reason, which differs from process to process."""
_BRANCHES = ("generic_jump", "Data-dependent branching")
"""Beginnings of dynamo's reasons for a branch that it cannot take, by version."""


@dataclass(frozen=True)
class Break:
    """A graph break: the reason in one line, and the line of code where it is known."""

    reason: str
    place: str | None


@dataclass(frozen=True)
class Captured:
    """The graphs of one pass in the order of their capture, and what broke it into pieces.

    `breaks` lists the breaks that ended a graph, then those with an empty graph before them. After
    `passes` nothing more is captured. `given_up` says that a pass then enters no graph: dynamo runs
    the model as it stands.
    """

    graphs: tuple[GraphModule, ...]
    breaks: tuple[Break, ...]
    passes: int = 1
    given_up: bool = False

    @property
    def graph_breaks(self) -> int:
        """The number of breaks between graphs, counted as torch._dynamo.explain does."""
        return max(len(self.graphs) - 1, 0)

    @property
    def why(self) -> str:
        """Why the pass is not one graph, in one line."""
        return "; ".join(self.reasons) or NO_REASON

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of the pass's breaks, each once."""
        return tuple(dict.fromkeys(each.reason for each in self.breaks))

    def counted(self) -> Counted:
        """Return a summary of the graphs, without the graphs and the weights that they hold."""
        found = (len(self.graphs), self.graph_breaks, self.reasons, self.why)
        return Counted(*found, self.passes, self.given_up)


@dataclass(frozen=True)
class Counted:
    """The number of graphs of one pass, its breaks, and why it is not one graph, in one line.

    `passes` and `given_up` are those of `Captured`.
    """

    graphs: int
    graph_breaks: int
    reasons: tuple[str, ...]
    why: str
    passes: int
    given_up: bool


@contextmanager
def compiling() -> Iterator[None]:
    """Make torch.compile raise what it cannot compile, whatever the environment says, and once.

    opdb reports dynamo's warnings with the graphs, not on stderr; TORCH_LOGS shows them there.

    Raises:
        CannotMeasureError: the environment keeps torch.compile from compiling.
    """
    check_works("torch.compile")
    from torch._dynamo import config  # torch.compile itself imports it no sooner

    loggers = [] if os.environ.get("TORCH_LOGS") else [logging.getLogger(n) for n in _WARNING]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with config.patch(suppress_errors=False):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _Backend:
    """The backend that dynamo hands its graphs to: keeps them, and counts how often one is entered.

    `run` runs a graph on its inputs, None for the graph's own code.
    """

    def __init__(self, run: Callable[[GraphModule, tuple[Any, ...]], Any] | None) -> None:
        self.run = run
        self.graphs: list[GraphModule] = []
        self.entered = 0

    def __call__(self, graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        """Keep a graph, and return what is called in its place."""
        self.graphs.append(graph)
        _ = graph.code  # made now: what is raised in a call that has it made, torch prints, too

        def enter(*inputs: Any) -> Any:
            self.entered += 1
            return self.run(graph, inputs) if self.run else graph.forward(*inputs)

        return enter


def capture_graphs(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[[GraphModule, tuple[Any, ...]], Any] | None = None,
) -> Captured:
    """Run one pass under dynamo and keep the graphs that it captures, in a fresh state.

    `run` runs a graph on its inputs in place of the graph's own code. Passes are then repeated
    until they capture nothing more, or PASSES are over. Whatever the module raises is raised here
    too.

    Raises:
        CannotMeasureError: the environment keeps torch.compile from compiling.
    """
    backend = _Backend(run)
    breaks_seen, refused = counted("graph_break"), counted("unimplemented")
    try:
        with compiling(), torch.no_grad():
            torch.compiler.reset()
            breaks_seen.clear()
            refused.clear()
            compiled = torch.compile(module, backend=backend)
            compiled(*args, **kwargs)
            found, others = tuple(backend.graphs), list(breaks_seen)
            backend.run, passes, known = None, 1, 0
            while known < len(backend.graphs) and passes <= PASSES:
                known, backend.entered = len(backend.graphs), 0
                compiled(*args, **kwargs)
                passes += known < len(backend.graphs)
        if not (backend.graphs or others):
            others = list(refused)
        others += [reason for reason in refused if _TOO_OFTEN.search(reason)]
    finally:
        torch.compiler.reset()
    ended = [each for graph in found if (each := _break_of(graph)) is not None]
    seen = {each.reason for each in ended}
    short = dict.fromkeys(map(in_short, others))
    breaks = (*ended, *(Break(reason, None) for reason in short if reason not in seen))
    return Captured(found, breaks, passes, bool(found) and not backend.entered)


def _break_of(graph: GraphModule) -> Break | None:
    """Return the break at which a graph ended; None where the code ended with it.

    The attribute that dynamo sets on a graph is not documented: without it, no reason is given.
    """
    ended = getattr(graph, "compile_subgraph_reason", None)
    if not getattr(ended, "graph_break", False):
        return None
    frames = getattr(ended, "user_stack", None) or [None]
    frame = frames[-1]
    place = None if frame is None else f"{frame.filename}:{frame.lineno} in {frame.name}"
    return Break(in_short(str(getattr(ended, "reason", NO_REASON))), place)


def compiled_frames() -> int:
    """Return how many functions dynamo has compiled; 0 where nothing has used it."""
    if "torch._dynamo" not in sys.modules:
        return 0
    return counted("frames")["total"]


def counted(what: str) -> Counter[str]:
    """Return a count that dynamo, or inductor, keeps by reason."""
    from torch._dynamo.utils import counters

    return counters[what]


def in_short(reason: str) -> str:
    """Return a reason in one line: its title and, where dynamo gives one, its explanation."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if not lines:
        return NO_REASON
    if lines[0].startswith(_BRANCHES):
        return "a branch depends on a tensor's value"
    if _TOO_OFTEN.search(lines[0]):
        return f"a function is recompiled too often, and runs uncompiled ({lines[0]})"
    explained = [line for line in lines[1:] if line.startswith(EXPLANATION)]
    said = [lines[0], *(line.removeprefix(EXPLANATION).strip() for line in explained)]
    return _ADDRESS.sub("", ": ".join(said))
