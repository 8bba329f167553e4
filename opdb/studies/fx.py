"""The FX graphs that dynamo captures from a model, each node with its operator's measured cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opdb.lookup.words import describe
from opdb.predict import choose_device, predictor_for
from opdb.records import Configuration, Cost, Json
from opdb.store import Store
from opdb.tables import Column, Report, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.harvest.graphs import Graph, ModelGraphs, Node
    from opdb.models import ModelRequest

_ASSIGNED = re.compile(r"^\s+(\w+)(?::\s*\"[^\"]*\")?\s*=\s")
"""A line of a printed graph that makes a node, by whose name it begins."""


@dataclass(frozen=True)
class Costs:
    """What is known of operators on a board, by key; nothing, and why, where there is no board."""

    of: Mapping[str, Cost] = field(default_factory=dict)
    device: str | None = None
    board: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Sum:
    """What nodes call, how much of it was measured, and what that takes."""

    calls: int
    measured: int
    undescribed: int
    time_s: float | None
    energy_j: float | None


def costs_of(
    store: Store, found: ModelGraphs, name: str | None = None, prefix: str | None = None
) -> Costs:
    """Return what graphs' operators take on the board that is named, else on the one with most.

    Raises:
        InputError: there is no such device or board.
    """
    if name is None and prefix is None and not store.devices():
        return Costs(reason=f"{store.location} holds no measurements")
    device = choose_device(store, name)
    predictor = predictor_for(store, device)
    calls = (call for graph in found.graphs for node in graph.nodes for call in node.calls)
    configurations = list(dict.fromkeys(calls))
    keys = [c.key for c in configurations]
    boards = sorted({c.board.uuid for c in store.campaigns(device.slug)})
    if prefix is not None:
        board = predictor.board(prefix)
    elif boards:
        board = max(boards, key=lambda uuid: len(store.costs(uuid, keys)))
    else:
        return Costs(device=device.name, reason=f"nothing was measured on {device.name}")
    return Costs(predictor.costs_on(board, configurations), device.name, board)


def _sum(nodes: Sequence[Node], costs: Costs) -> Sum:
    calls = [call for node in nodes for call in node.calls]
    known = [cost for call in calls if (cost := costs.of.get(call.key)) is not None]
    times = [cost.time_s.mean for cost in known if cost.time_s]
    energies = [cost.energy_j.mean for cost in known if cost.energy_j]
    return Sum(
        len(calls),
        len(times),
        sum(not node.described for node in nodes),
        sum(times) if times else None,
        sum(energies) if energies else None,
    )


def _head(request: ModelRequest, found: ModelGraphs, costs: Costs) -> Iterator[str]:
    """Yield what was captured, where dynamo breaks off, and whose costs are shown."""
    yield (
        f"{request.name}, {describe(request)}: {plural(len(found.graphs), 'graph')}, "
        f"{plural(found.graph_breaks, 'break')}, captured on {found.device} by torch "
        f"{found.torch}"
    )
    for each in found.breaks:
        yield f"broken off{f' at {each.place}' if each.place else ''}: {each.reason}"
    others = found.graph_breaks - sum(each.place is not None for each in found.breaks)
    if others > 0:
        yield (
            f"broken off besides {plural(others, 'time')}, where a function returns: one that "
            "broken code calls, or what is left of that code, is a graph of its own"
        )
    if not found.graphs:
        yield "not compiled: dynamo captures no graph of this model"
    if costs.board is None:
        yield f"no costs: {costs.reason}"
    else:
        yield f"costs of one call each on {costs.device} ({costs.board}): time, energy"


def _lines(graph: Graph, costs: Costs) -> Iterator[str]:
    """Yield a graph's lines; one that makes a node that calls operators says what they take."""
    nodes = {node.name: node for node in graph.nodes}
    for line in graph.text.strip("\n").splitlines():
        made = _ASSIGNED.match(line)
        node = nodes.get(made[1]) if made else None
        told = _told(node, costs) if node is not None else ""
        yield f"{line}  # {told}" if told else line


def _told(node: Node, costs: Costs) -> str:
    """Say what a node calls and takes; nothing of one that calls nothing."""
    if not node.described:
        return "no operator describes it"
    told = []
    for call in node.calls:
        cost = costs.of.get(call.key)
        if cost is None or cost.time_s is None:
            told.append(f"{call.kind}: not measured")
        else:
            energy = show(cost.energy_j.mean if cost.energy_j else None, "J")
            told.append(f"{call.kind}: {show(cost.time_s.mean, 's')}, {energy}")
    return "; ".join(told)


def _operator(call: Configuration, costs: Costs) -> Json:
    cost = costs.of.get(call.key)
    return {
        "kind": call.kind,
        "configuration": call.key,
        "time_s": cost.time_s.mean if cost and cost.time_s else None,
        "energy_j": cost.energy_j.mean if cost and cost.energy_j else None,
    }


GRAPHS: Table[tuple[int, int, Sum]] = Table(
    Column("graph", lambda row: row[0], title="graph"),
    Column("nodes", lambda row: row[1], title="nodes"),
    Column("calls", lambda row: row[2].calls, title="calls"),
    Column("measured", lambda row: row[2].measured, title="measured"),
    Column("time_s", lambda row: row[2].time_s, title="time", unit="s"),
    Column("energy_j", lambda row: row[2].energy_j, title="energy", unit="J"),
)
"""A graph by its number, how many nodes it has, and what these call and take."""


@dataclass(frozen=True)
class FxGraphs(Report):
    """The graphs of a model, and what their operators take on a board."""

    request: ModelRequest
    found: ModelGraphs
    costs: Costs

    def _sums(self) -> list[tuple[int, int, Sum]]:
        return [
            (number, len(graph.nodes), _sum(graph.nodes, self.costs))
            for number, graph in enumerate(self.found.graphs, 1)
        ]

    def text(self) -> str:
        """Return all graphs: a head, then each as dynamo prints it, with costs as comments."""
        lines = [f"# {line}" for line in _head(self.request, self.found, self.costs)]
        for graph, (number, nodes, known) in zip(self.found.graphs, self._sums(), strict=True):
            lines += [
                "",
                f"# graph {number} of {len(self.found.graphs)}: {plural(nodes, 'node')}, "
                f"{plural(known.calls, 'operator call')}, {known.measured} of them measured: "
                f"{show(known.time_s, 's')}, {show(known.energy_j, 'J')}",
                *_lines(graph, self.costs),
            ]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> Json:
        """Return the graphs with their nodes, and each node's operators with their costs."""
        request, found, costs = self.request, self.found, self.costs
        kinds = Counter(call.kind for g in found.graphs for node in g.nodes for call in node.calls)
        return {
            "model": request.name,
            "source": request.source,
            "batch_size": request.batch_size,
            "dtype": request.dtype,
            "memory_format": request.memory_format,
            "captured_on": found.device,
            "torch": found.torch,
            "device": costs.device,
            "board": costs.board,
            "graph_count": len(found.graphs),
            "graph_breaks": found.graph_breaks,
            "breaks": [{"reason": each.reason, "place": each.place} for each in found.breaks],
            "by_kind": dict(sorted(kinds.items())),
            "graphs": [self._graph(graph) for graph in found.graphs],
        }

    def _graph(self, graph: Graph) -> Json:
        return {
            "text": graph.text,
            **vars(_sum(graph.nodes, self.costs)),
            "nodes": [
                {
                    "name": node.name,
                    "operation": node.operation,
                    "target": node.target,
                    "described": node.described,
                    "calls": [_operator(call, self.costs) for call in node.calls],
                }
                for node in graph.nodes
            ],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the head, and a row for each graph."""
        yield from _head(self.request, self.found, self.costs)
        if self.found.graphs:
            yield Rows(GRAPHS, self._sums())
