"""`opdb graph`: the FX graphs that dynamo captures, each node with its operator's measured cost."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import note, print_json, print_table
from opdb.cli.files import check_writable, write_file
from opdb.cli.selection import describe, request_for
from opdb.errors import InputError, NoDatabaseError
from opdb.records import Json
from opdb.units import counted, show

if TYPE_CHECKING:
    from opdb.graphs import Graph, ModelGraphs, Node
    from opdb.models import ModelRequest
    from opdb.records import Configuration, Cost
    from opdb.store import Store

_ASSIGNED = re.compile(r"^\s+(\w+)(?::\s*\"[^\"]*\")?\s*=\s")
"""A line of a printed graph that makes a node, by whose name it begins."""


@dataclass(frozen=True)
class _Costs:
    """What is known of operators on a board, by key; nothing, and why, where there is no board."""

    of: Mapping[str, Cost] = field(default_factory=dict)
    device: str | None = None
    board: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Sum:
    """What nodes call, how much of it was measured, and what that takes."""

    calls: int
    measured: int
    undescribed: int
    time_s: float | None
    energy_j: float | None


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or summary file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the graphs to a file."),
    ] = None,
    batch_size: options.BatchSize = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Costs of this board; the beginning of its UUID will do.  [default: the one that "
            "has most of them]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show the graphs that torch.compile's dynamo captures from a model, as text.

    Each line that calls an operator ends with its kind and what one call takes on the device, as
    far as it was measured. Where dynamo breaks off, why and at which line of code. Captured
    without weights and without a GPU, on the meta device, or on the CPU where values decide.
    """
    said = options.model_options(batch_size, input_size, dtype, memory_format, None)
    request = request_for(model, said).checked()
    if request.phase != "inference":
        raise InputError(f"graphs of {request.name!r} are those of inference; this is training")
    if output is not None:
        check_writable(output)
    from opdb.store import open_store

    try:
        store = open_store(db, create=False)
    except NoDatabaseError as error:
        if any(said is not None for said in (db, device, board)):
            raise
        found, costs = _captured(request), _Costs(reason=str(error))
    else:
        with store:
            found = _captured(request)
            costs = _costs(store, _configurations(found), device, board)
    request = replace(request, batch_size=found.batch_size)
    text = _text(request, found, costs)
    if output is not None:
        write_file(output, text.encode())
        note(f"written: {output}", quiet=quiet or as_json)
    if as_json:
        print_json(_document(request, found, costs))
    elif output is None:
        print(text, end="")
    else:
        _print(request, found, costs)


def _captured(request: ModelRequest) -> ModelGraphs:
    """Capture a model's graphs; what it prints goes to stderr, for stdout is for the text."""
    from opdb.graphs import model_graphs

    with redirect_stdout(sys.stderr):
        return model_graphs(request)


def _configurations(found: ModelGraphs) -> list[Configuration]:
    calls = (call for graph in found.graphs for node in graph.nodes for call in node.calls)
    return list(dict.fromkeys(calls))


def _costs(
    store: Store, configurations: Sequence[Configuration], name: str | None, prefix: str | None
) -> _Costs:
    """Return what operators take on the board that is named, else on the one that has most."""
    from opdb.predict import Predictor, choose_device

    if name is None and prefix is None and not store.devices():
        return _Costs(reason=f"{store.location} holds no measurements")
    device = choose_device(store, name)
    predictor = Predictor(store, device)
    keys = [c.key for c in configurations]
    boards = sorted({c.board.uuid for c in store.campaigns(device.slug)})
    if prefix is not None:
        board = predictor.board(prefix)
    elif boards:
        board = max(boards, key=lambda uuid: len(store.costs(uuid, keys)))
    else:
        return _Costs(device=device.name, reason=f"nothing was measured on {device.name}")
    return _Costs(predictor.costs_on(board, configurations), device.name, board)


def _sum(nodes: Sequence[Node], costs: _Costs) -> _Sum:
    calls = [call for node in nodes for call in node.calls]
    known = [cost for call in calls if (cost := costs.of.get(call.key)) is not None]
    times = [cost.time_s.mean for cost in known if cost.time_s]
    energies = [cost.energy_j.mean for cost in known if cost.energy_j]
    return _Sum(
        len(calls),
        len(times),
        sum(not node.described for node in nodes),
        sum(times) if times else None,
        sum(energies) if energies else None,
    )


# The text


def _text(request: ModelRequest, found: ModelGraphs, costs: _Costs) -> str:
    """Return all graphs as text: a head, then each as dynamo prints it, with costs as comments."""
    lines = [f"# {line}" for line in _head(request, found, costs)]
    for number, graph in enumerate(found.graphs, 1):
        known = _sum(graph.nodes, costs)
        lines += [
            "",
            f"# graph {number} of {len(found.graphs)}: {counted(len(graph.nodes), 'node')}, "
            f"{counted(known.calls, 'operator call')}, {known.measured} of them measured: "
            f"{show(known.time_s, 's')}, {show(known.energy_j, 'J')}",
            *_lines(graph, costs),
        ]
    return "\n".join(lines) + "\n"


def _head(request: ModelRequest, found: ModelGraphs, costs: _Costs) -> Iterator[str]:
    yield (
        f"{request.name}, {describe(request)}: {counted(len(found.graphs), 'graph')}, "
        f"{counted(found.graph_breaks, 'break')}, captured on {found.device} by torch "
        f"{found.torch}"
    )
    for each in found.breaks:
        yield f"broken off{f' at {each.place}' if each.place else ''}: {each.reason}"
    others = found.graph_breaks - sum(each.place is not None for each in found.breaks)
    if others > 0:
        yield (
            f"broken off besides {counted(others, 'time')}, where a function returns: one that "
            "broken code calls, or what is left of that code, is a graph of its own"
        )
    if not found.graphs:
        yield "not compiled: dynamo captures no graph of this model"
    if costs.board is None:
        yield f"no costs: {costs.reason}"
    else:
        yield f"costs of one call each on {costs.device} ({costs.board}): time, energy"


def _lines(graph: Graph, costs: _Costs) -> Iterator[str]:
    """Yield a graph's lines; one that makes a node that calls operators says what they take."""
    nodes = {node.name: node for node in graph.nodes}
    for line in graph.text.strip("\n").splitlines():
        made = _ASSIGNED.match(line)
        node = nodes.get(made[1]) if made else None
        told = _told(node, costs) if node is not None else ""
        yield f"{line}  # {told}" if told else line


def _told(node: Node, costs: _Costs) -> str:
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


def _print(request: ModelRequest, found: ModelGraphs, costs: _Costs) -> None:
    """Print what the file holds, a line for each graph and for each kind in them."""
    print(*_head(request, found, costs), sep="\n")
    rows = []
    for number, graph in enumerate(found.graphs, 1):
        known = _sum(graph.nodes, costs)
        shown = (show(known.time_s, "s"), show(known.energy_j, "J"))
        rows.append((number, len(graph.nodes), known.calls, known.measured, *shown))
    if rows:
        print_table(("graph", "nodes", "calls", "measured", "time", "energy"), rows)


# JSON


def _document(request: ModelRequest, found: ModelGraphs, costs: _Costs) -> Json:
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
        "graphs": [
            {
                "text": graph.text,
                **vars(_sum(graph.nodes, costs)),
                "nodes": [_node_document(node, costs) for node in graph.nodes],
            }
            for graph in found.graphs
        ],
    }


def _node_document(node: Node, costs: _Costs) -> Json:
    calls = []
    for call in node.calls:
        cost = costs.of.get(call.key)
        calls.append(
            {
                "kind": call.kind,
                "configuration": call.key,
                "time_s": cost.time_s.mean if cost and cost.time_s else None,
                "energy_j": cost.energy_j.mean if cost and cost.energy_j else None,
            }
        )
    return {
        "name": node.name,
        "operation": node.operation,
        "target": node.target,
        "described": node.described,
        "calls": calls,
    }
