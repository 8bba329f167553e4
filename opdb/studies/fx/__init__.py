"""`opdb fx`: the FX graphs that dynamo captures, each node with its operator's measured cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.cli import console, options
from opdb.cli.console import save, say
from opdb.commands.predict import check_named
from opdb.errors import InputError, NoDatabaseError
from opdb.files import check_writable
from opdb.records import Configuration, Cost, Json
from opdb.spec import ModelSpec, describe, dtype_from, dtype_words
from opdb.summary_files import checked_request
from opdb.tables import Column, Report, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.store import Store
    from opdb.studies.fx.graphs import Graph, ModelGraphs, Node

PANEL = "studies"

_ASSIGNED = re.compile(r"^\s+(\w+)(?::\s*\"[^\"]*\")?\s*=\s")
"""A line of a printed graph that makes a node, by whose name it begins."""


@dataclass(frozen=True)
class KnownCosts:
    """What is known of operators on a board, by key; nothing, and why, where there is no board."""

    of: Mapping[str, Cost] = field(default_factory=dict)
    device: str | None = None
    board: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class GraphSum:
    calls: int
    measured: int
    undescribed: int
    time_s: float | None
    energy_j: float | None


def costs_of(
    store: Store, found: ModelGraphs, name: str | None = None, prefix: str | None = None
) -> KnownCosts:
    if name is None and prefix is None and not store.devices():
        return KnownCosts(reason=f"{store.location} holds no measurements")
    from opdb.predict.predictor import choose_device, predictor_for

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
        return KnownCosts(device=device.name, reason=f"nothing was measured on {device.name}")
    return KnownCosts(predictor.costs_on(board, configurations), device.name, board)


def _sum(nodes: Sequence[Node], costs: KnownCosts) -> GraphSum:
    calls = [call for node in nodes for call in node.calls]
    known = [cost for call in calls if (cost := costs.of.get(call.key)) is not None]
    times = [cost.time_s.mean for cost in known if cost.time_s]
    energies = [cost.energy_j.mean for cost in known if cost.energy_j]
    return GraphSum(
        len(calls),
        len(times),
        sum(not node.described for node in nodes),
        sum(times) if times else None,
        sum(energies) if energies else None,
    )


def _head(request: ModelSpec, found: ModelGraphs, costs: KnownCosts) -> Iterator[str]:
    yield (
        f"{request.name}, {describe(request, dtype=dtype_words(found.loaded))}: "
        f"{plural(len(found.graphs), 'graph')}, "
        f"{plural(found.graph_breaks, 'break')}, captured on {found.device} by torch "
        f"{found.torch}"
    )
    for each in found.breaks:
        yield f"broken off{f' at {each.place}' if each.place else ''}: {each.reason}"
    if not found.graphs:
        yield "not compiled: dynamo captures no graph of this model"
    if costs.board is None:
        yield f"no costs: {costs.reason}"
    else:
        yield f"costs of one call each on {costs.device} ({costs.board}): time, energy"


def _lines(graph: Graph, costs: KnownCosts) -> Iterator[str]:
    nodes = {node.name: node for node in graph.nodes}
    for line in graph.text.strip("\n").splitlines():
        made = _ASSIGNED.match(line)
        node = nodes.get(made[1]) if made else None
        told = _told(node, costs) if node is not None else ""
        yield f"{line}  # {told}" if told else line


def _told(node: Node, costs: KnownCosts) -> str:
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


def _operator(call: Configuration, costs: KnownCosts) -> Json:
    cost = costs.of.get(call.key)
    return {
        "kind": call.kind,
        "configuration": call.key,
        "time_s": cost.time_s.mean if cost and cost.time_s else None,
        "energy_j": cost.energy_j.mean if cost and cost.energy_j else None,
    }


GRAPHS: Table[tuple[int, int, GraphSum]] = Table(
    Column("graph", lambda row: row[0], title="graph"),
    Column("nodes", lambda row: row[1], title="nodes"),
    Column("calls", lambda row: row[2].calls, title="calls"),
    Column("measured", lambda row: row[2].measured, title="measured"),
    Column("time_s", lambda row: row[2].time_s, title="time", unit="s"),
    Column("energy_j", lambda row: row[2].energy_j, title="energy", unit="J"),
)


@dataclass(frozen=True)
class FxGraphs(Report):
    request: ModelSpec
    found: ModelGraphs
    costs: KnownCosts

    def _sums(self) -> list[tuple[int, int, GraphSum]]:
        return [
            (number, len(graph.nodes), _sum(graph.nodes, self.costs))
            for number, graph in enumerate(self.found.graphs, 1)
        ]

    def text(self) -> str:
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
        request, found, costs = self.request, self.found, self.costs
        kinds = Counter(call.kind for g in found.graphs for node in g.nodes for call in node.calls)
        return {
            "model": request.name,
            "source": request.source,
            "batch_size": request.batch_size,
            "dtype": request.dtype,
            "dtype_from": dtype_from(found.loaded),
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
        yield from _head(self.request, self.found, self.costs)
        if self.found.graphs:
            yield Rows(GRAPHS, self._sums())


def run(
    model: Annotated[
        str,
        options.models("A model's name or summary file."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the graphs to a file."),
    ] = None,
    said: options.InferenceModel = ModelSpec(),
    device: options.DeviceName = None,
    board: options.BoardOption = None,
    out: options.Output = options.Output(),
) -> None:
    """Show the graphs that torch.compile's dynamo captures from a model, as text.

    Each line that calls an operator ends with its kind and what one call takes on the device, as
    far as it was measured. Where dynamo breaks off, why and at which line of code. Captured
    without weights and without a GPU, on the meta device, or on the CPU where values decide.
    """
    request = checked_request(model, said)
    if request.phase != "inference":
        raise InputError(f"graphs of {request.name!r} are those of inference; this is training")
    check_writable(output)
    report = _report(request, out.db, device, board)
    if output is not None:
        save(output, report.text(), quiet=out.quiet or out.as_json)
    if out.as_json or output is not None:
        console.show(report, as_json=out.as_json)
    else:
        say(*report.text().splitlines())


def _report(request: ModelSpec, db: str | None, device: str | None, board: str | None) -> FxGraphs:
    from opdb.store import open_store

    try:
        store = open_store(db, create=False)
    except NoDatabaseError as error:
        if any(named is not None for named in (db, device, board)):
            raise
        found, costs = _captured(request), KnownCosts(reason=str(error))
    else:
        with store:
            if device is not None or board is not None:
                check_named(store, device, board)
            found = _captured(request)
            costs = costs_of(store, found, device, board)
    as_loaded = replace(
        request,
        batch_size=found.loaded.batch_size,
        dtype=found.loaded.dtype,
        memory_format=found.loaded.memory_format,
    )
    return FxGraphs(as_loaded, found, costs)


def _captured(request: ModelSpec) -> ModelGraphs:
    from opdb.studies.fx.graphs import model_graphs

    return model_graphs(request)
