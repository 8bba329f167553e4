"""`opdb modes`: what each way of issuing a model's work takes, and what it saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from opdb.cli import options
from opdb.cli.console import note, print_json, print_table, progress, raise_all
from opdb.cli.files import check_writable, csv_text, write_file
from opdb.cli.gains import Explained, explain
from opdb.cli.selection import (
    IDENTITY,
    batch_sizes_among,
    describe,
    identity,
    note_harvest,
    request_for,
    requests_in,
    summary_files,
)
from opdb.errors import InputError, OpdbError
from opdb.records import Json, Mode
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.bench.model import RunOptions
    from opdb.bench.platform import Platform
    from opdb.models import ModelRequest
    from opdb.records import Device, ModelRun, Workload
    from opdb.store import Store
    from opdb.studies.modes import ModeRow

MODES: tuple[Mode, ...] = get_args(Mode)

_HEADER = (
    *("model", "workload", "mode", "time", "energy", "saves: time", "energy"),
    *("of operators: time", "energy", "compile", "graphs", "breaks"),
)
FIELDS = (
    *IDENTITY,
    *("board", "torch", "mode", "outcome", "reason", "compiled", "time_s", "energy_j"),
    *("energy_reason", "power_w", "clock_hz", "peak_memory_bytes", "launches", "compile_time_s"),
    *("compile_cold", "graphs", "graph_breaks", "graph_break_reasons", "output_difference"),
    *("saving_time", "saving_energy", "operators_time_s", "operators_energy_j"),
    *("operators_coverage_time", "saving_time_of_operators", "saving_energy_of_operators"),
    *("started_at", "flags"),
)
"""The columns of the CSV file."""


def run(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Model names or summary files.")
    ] = None,
    batch_sizes: options.BatchSizes = None,
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--modes",
            metavar="MODE…",
            help="As in eager,compile; may be given several times.  [default: eager, graph, "
            "compile, compile:reduce-overhead, compile:max-autotune, dynamo and trace, those "
            "that the device has]",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Stretches of 1 s to measure.")
    ] = 3,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every row as CSV.")
    ] = None,
    explained: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Measure nothing: which traits of all models measured go with what modes save, "
            "and for each MODEL in a sentence.",
        ),
    ] = False,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored", help="Measure nothing: show what the database has, of all boards."
        ),
    ] = False,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="With --explain: draw it as PNG.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="With --explain: draw it as SVG.")
    ] = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --stored and --explain as opdb status names it.",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure models in each mode: time and energy, what compiling takes, what is saved.

    Savings are shares of the eager run's time and energy, and of the sum of the model's operators
    where all were measured. What this board has of this version of torch is not measured again.
    Compilers start with an empty cache each time. A model that a mode leaves as it is counts as
    not compiled. A mode that fails does not stop the others.
    """
    chosen = options.parse_modes(modes)
    if explained and stored:
        raise InputError("--stored and --explain: choose one")
    needed = not (explained or stored)
    names, sizes = batch_sizes_among(models or [], batch_sizes, needed=needed)
    if explained:
        asked_of = Explained(names, sizes, chosen, device, csv_file, png, svg)
        explain(asked_of, db, as_json=as_json, quiet=quiet)
        return
    if png is not None or svg is not None:
        raise InputError("--png and --svg draw what --explain tells; add --explain")
    if csv_file is not None:
        check_writable(csv_file)
    if stored:
        shown = _stored(names, sizes, chosen or MODES, device, db)
        _give(shown, csv_file, as_json=as_json, quiet=quiet)
        return
    said = options.model_options(None, input_size, dtype, memory_format, None)
    wanted = [replace(said, batch_size=size) for size in sizes] or [said]
    requests = [request for name in names for one in wanted for request in _requests(name, one)]
    from opdb.bench.measure import check_modes, modes_of
    from opdb.bench.model import RunOptions
    from opdb.bench.platform import detect
    from opdb.store import open_store

    platform = detect(device)
    asked = chosen or modes_of(platform)
    check_modes(asked, device)
    errors: list[OpdbError] = []
    with open_store(db) as store:
        jobs = _harvested(store, requests, errors, quiet=quiet)
        lacking = _lacking(store, platform, jobs, asked, retry=retry)
        _measure(store, lacking, RunOptions(repeats), device, quiet=quiet)
        rows = _rows(store, platform, [workload for _, workload in jobs], asked)
    left_out = [] if chosen else [mode for mode in MODES if mode not in asked]
    shown = _Shown(platform.device, platform.board.uuid, rows, left_out)
    _give(shown, csv_file, as_json=as_json, quiet=quiet)
    _finish(rows, errors)


@dataclass(frozen=True)
class _Shown:
    """Rows of a device; `board` is None where they may be of several."""

    device: Device
    board: str | None
    rows: Sequence[ModeRow]
    left_out: Sequence[Mode] = ()


def _stored(
    models: Sequence[str],
    batch_sizes: Sequence[int],
    modes: Sequence[Mode],
    device: str | None,
    db: str | None,
) -> _Shown:
    """Return what the database has of a device.

    Raises:
        InputError: it has nothing of what was asked for.
    """
    from opdb.predict import Predictor, choose_device
    from opdb.store import open_store
    from opdb.studies.modes import stored_rows

    with open_store(db, create=False) as store:
        found = choose_device(store, device)
        rows = stored_rows(store, Predictor(store, found), models, batch_sizes)
    rows = [row for row in rows if row.mode in modes]
    if not rows:
        raise InputError(f"no run of that on {found.slug}; without --stored opdb modes makes it")
    return _Shown(found, None, rows)


def _give(shown: _Shown, csv_file: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Write rows as CSV where that is asked for, and print them."""
    if csv_file is not None:
        write_file(csv_file, _csv(shown.rows).encode())
        note(f"written: {csv_file}", quiet=quiet or as_json)
    if as_json:
        print_json(_document(shown))
    elif shown.rows:
        _print(shown)


def _requests(name: str, said: options.ModelOptions) -> list[ModelRequest]:
    """Return what a name and the options mean: of a file all, of a model's name one request."""
    files = summary_files(name)
    found = [r for file in files for r in requests_in(file, said)] or [request_for(name, said)]
    return [request.checked() for request in found]


def _harvested(
    store: Store, requests: Sequence[ModelRequest], errors: list[OpdbError], *, quiet: bool
) -> list[tuple[ModelRequest, Workload]]:
    """Return each request with its workload, harvested and saved; why there is none in `errors`."""
    from opdb.bench.measure import harvested

    found = []
    tell = partial(note_harvest, quiet=quiet)
    with progress(len(requests), "harvest", quiet=quiet) as shown:
        for request in requests:
            shown.doing(f"{request.name} {describe(request)}")
            workloads = harvested(store, [request], errors, tell)
            found += [(request, each) for each in workloads.values()]
            shown.done()
    return found


def _lacking(
    store: Store,
    platform: Platform,
    jobs: Sequence[tuple[ModelRequest, Workload]],
    modes: Sequence[Mode],
    *,
    retry: bool,
) -> list[tuple[ModelRequest, Workload, Mode]]:
    """Return what this board has not run yet with this version of torch."""
    from opdb.studies.modes import done

    known = done(store, platform.board, platform.environment["torch"], retry=retry)
    wanted = {
        (workload.key, mode): (request, workload, mode)
        for request, workload in jobs
        for mode in modes
    }
    return [job for key, job in wanted.items() if key not in known]


def _measure(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Workload, Mode]],
    options_of_all: RunOptions,
    device: str | None,
    *,
    quiet: bool,
) -> None:
    """Run each workload in its mode; what comes of it is in the store."""
    from opdb.bench.measure import measure_harvested

    with progress(len(jobs), "measure", quiet=quiet) as shown:
        for workload, ran in measure_harvested(store, jobs, options_of_all, device=device):
            shown.doing(f"{workload.name} {describe(workload)} {ran.mode}")
            if ran.outcome != "ok":
                shown.note(f"{workload.name} {describe(workload)} {ran.mode}: {_came_of(ran)}")
            shown.done()


def _rows(
    store: Store, platform: Platform, workloads: Sequence[Workload], modes: Sequence[Mode]
) -> list[ModeRow]:
    from opdb.predict import Predictor, choose_device
    from opdb.studies.modes import mode_rows

    distinct = list({workload.key: workload for workload in workloads}.values())
    if not distinct:
        return []
    predictor = Predictor(store, choose_device(store, platform.device.slug))
    found = mode_rows(store, predictor, platform.board.uuid, distinct)
    return [row for row in found if row.mode in modes]


def _came_of(ran: ModelRun) -> str:
    """Say what came of a run that gave no figures."""
    return str(ran.reason) if ran.outcome == "unsupported" else f"{ran.outcome}: {ran.reason}"


# What is shown


def _print(shown: _Shown) -> None:
    for (board, torch), found in groupby(shown.rows, key=lambda row: (row.board, row.torch)):
        rows = list(found)
        print(f"{shown.device.name} ({board}), torch {torch}")
        print_table(_HEADER, [_cells(row) for row in rows])
        for who, remark in _grouped(rows):
            print(f"{who}: {remark}")
    if shown.left_out:
        print(f"left out, as they need a CUDA device: {', '.join(shown.left_out)}")


def _cells(row: ModeRow) -> tuple[str, ...]:
    """Return a row's cells; one without figures shows none."""
    facts = row.run.facts
    head = (row.workload.name, describe(row.workload), row.mode)
    counted = tuple(str(facts.get(name, "–")) for name in ("graphs", "graph_breaks"))
    if row.cost is None:
        return *head, *["–"] * 7, *counted
    return (
        *head,
        show(row.cost.time_s.mean, "s"),
        show(row.cost.energy_j.mean if row.cost.energy_j else None, "J"),
        show_share(row.saves.time),
        show_share(row.saves.energy),
        show_share(row.saves_of_operators.time),
        show_share(row.saves_of_operators.energy),
        show(facts.get("compile_time_s"), "s", digits=3),
        *counted,
    )


def _grouped(rows: Sequence[ModeRow]) -> Iterator[tuple[str, str]]:
    """Yield each remark once a workload, with the modes that it concerns; what all share, once."""
    told: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        who = f"{row.workload.name} {describe(row.workload)}"
        for remark in _remarks(row):
            told.setdefault(remark, {}).setdefault(who, []).append(row.mode)
    for remark, concerned in told.items():
        if len(rows) > 1 and sum(map(len, concerned.values())) == len(rows):
            yield "every run", remark
        else:
            yield from ((f"{who} {', '.join(of)}", remark) for who, of in concerned.items())


def _remarks(row: ModeRow) -> list[str]:
    """Return what must be known beside a row's figures, or why it has none."""
    if row.cost is None:
        return [_came_of(row.run)]
    broken = row.run.facts.get("graph_break_reasons") or []
    return [*(f"dynamo breaks off: {reason}" for reason in broken), *row.run.flags]


# CSV and JSON


def _csv(rows: Sequence[ModeRow]) -> str:
    return csv_text(FIELDS, (_flat(row_document(row)) for row in rows))


def _flat(document: dict[str, Json]) -> dict[str, Json]:
    """Return a row's document with its lists as text."""
    size = "x".join(map(str, document["input_size"] or ()))
    texts = {name: "; ".join(document[name] or ()) for name in ("graph_break_reasons", "flags")}
    return {**document, "input_size": size, **texts}


def row_document(row: ModeRow) -> dict[str, Json]:
    """Return a row as JSON, under the names that every command uses."""
    cost, summed, facts = row.cost, row.operators, row.run.facts
    return {
        **identity(row.workload),
        "board": row.board,
        "torch": row.torch,
        "mode": row.mode,
        "outcome": row.run.outcome,
        "reason": row.run.reason,
        "compiled": row.compiled,
        "time_s": cost.time_s.mean if cost else None,
        "energy_j": cost.energy_j.mean if cost and cost.energy_j else None,
        "energy_reason": row.energy_reason,
        "power_w": cost.power_w if cost else None,
        "clock_hz": cost.clock_hz if cost else None,
        "peak_memory_bytes": row.run.peak_memory_bytes,
        "launches": None if row.run.kernels is None else sum(row.run.kernels.values()),
        "compile_time_s": facts.get("compile_time_s"),
        "compile_cold": facts.get("compile_cold"),
        "graphs": facts.get("graphs"),
        "graph_breaks": facts.get("graph_breaks"),
        "graph_break_reasons": facts.get("graph_break_reasons"),
        "output_difference": facts.get("output_difference"),
        "saving_time": row.saves.time,
        "saving_energy": row.saves.energy,
        "operators_time_s": summed.time_s if summed else None,
        "operators_energy_j": summed.energy_j if summed else None,
        "operators_coverage_time": row.coverage_time,
        "saving_time_of_operators": row.saves_of_operators.time,
        "saving_energy_of_operators": row.saves_of_operators.energy,
        "started_at": row.run.started_at,
        "flags": list(row.run.flags),
    }


def _document(shown: _Shown) -> Json:
    return {
        "device": shown.device.slug,
        "board": shown.board,
        "rows": [row_document(row) for row in shown.rows],
        "left_out": dict.fromkeys(shown.left_out, "it needs a CUDA device"),
    }


def _finish(rows: Sequence[ModeRow], errors: Sequence[OpdbError]) -> None:
    """Raise what went wrong with whole models; a mode that refuses one is a finding.

    Raises:
        OpdbError: a model could not be harvested, or fails as it stands.
    """
    failed = [
        OpdbError(f"{row.workload.name} {describe(row.workload)} {row.mode}: {_came_of(row.run)}")
        for row in rows
        if row.mode == "eager" and row.cost is None
    ]
    raise_all([*errors, *failed], "stored")
