"""`opdb roofline`: operators and models under the peaks of a device, for time and for energy."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.cli import counting, options
from opdb.cli.console import note, print_json, print_table
from opdb.cli.files import check_writable, csv_text, write_file
from opdb.cli.selection import describe, find_workload, identity, request_for
from opdb.errors import NothingMeasuredError
from opdb.records import Json, Mode
from opdb.studies.peaks import MEMORY
from opdb.units import counted, rounded, show, show_share

if TYPE_CHECKING:
    from opdb.cli.counting import Seen
    from opdb.studies.figure import Drawing
    from opdb.studies.peaks import Peaks
    from opdb.studies.points import Bound, ModelRoofline, Part, Point, Roofs
    from opdb.studies.roofline import Study

_SHOWN = 12
"""Rows of a list that a person is shown; --json and --csv have all."""


def run(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Models' names or summary files.")
    ],
    mode: options.ModeName = "eager",
    batch_size: options.BatchSize = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    phase: options.PhaseName = None,
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Costs of this board; the beginning of its UUID will do.  [default: the one "
            "that measured the first model, else the one that covers it best]",
        ),
    ] = None,
    peaks: Annotated[
        Path | None,
        typer.Option(
            "--peaks", metavar="FILE", help="Peaks of your own (JSON) in place of the measured."
        ),
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every operator as CSV.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write the figure as PNG.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the figure as SVG.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page to explore, needs no network."),
    ] = None,
    ncu: counting.Run = False,
    counters: counting.Stored = False,
    ncu_csv: counting.Csv = None,
    ncu_metrics: counting.Metrics = None,
    ncu_report: counting.Report = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what holds each operator back, memory or arithmetic, and how far it is from its roof.

    Operations and bytes are counted, times and energies those of the database, peaks those that
    opdb calibrate measured; the vendor's stand apart. With --ncu, --ncu-csv or --counters
    operations and bytes are those that hardware counters saw, and both stand in one table.
    """
    chosen = cast(Mode, options.parse_mode(mode))
    said = options.model_options(batch_size, input_size, dtype, memory_format, phase)
    requests = [request_for(model, said) for model in dict.fromkeys(models)]
    asked = counting.Counting(ncu, counters, ncu_csv, ncu_metrics, ncu_report)
    asked.check()
    for path in filter(None, (csv_file, png, svg, html)):
        check_writable(path)  # before the work
    from opdb.predict import Predictor, choose_device
    from opdb.store import open_store
    from opdb.studies.roofline import Said, study

    seen: Seen | None = None
    with open_store(db, create=False) as store:
        workloads = [find_workload(store, request, said) for request in requests]
        counted_on = counting.count(store, workloads, asked, device, quiet=quiet or as_json)
        predictor = Predictor(store, choose_device(store, counted_on or device))
        on = None if board is None else predictor.board(board)
        if asked.asked:
            seen = counting.seen(store, workloads, predictor.device.slug, on)
        try:
            beside = Said(on, peaks, seen.profiles if seen else None)
            found = study(store, predictor, workloads, chosen, beside)
        except NothingMeasuredError as error:
            if seen is None or csv_file or png or svg or html:
                raise
            counting.show_alone(seen, str(error), as_json=as_json)
            return
    files = {} if csv_file is None else {csv_file: _csv(found).encode()}
    if png or svg or html:
        files |= _figures(found, png, svg, html)
    for path, content in files.items():
        write_file(path, content)
        note(f"written: {path}", quiet=quiet or as_json)
    if as_json:
        print_json({**document(found), "counters": counting.document(seen)})
    else:
        _print(found)
        if seen is not None:
            print()
            counting.show(seen)


# Files


def _figures(
    found: Study, png: Path | None, svg: Path | None, html: Path | None
) -> dict[Path, bytes]:
    from opdb.studies.figure import draw
    from opdb.studies.page import page

    titles = [_title(model) for model in found.models]
    drawing: Drawing = draw(found, titles, _command())
    files: dict[Path, bytes] = {}
    if png is not None:
        files[png] = drawing.png
    if svg is not None:
        files[svg] = drawing.svg.encode()
    if html is not None:
        files[html] = page(drawing, f"Roofline: {', '.join(titles)}").encode()
    return files


def _title(model: ModelRoofline) -> str:
    return f"{model.workload.name}, {describe(model.workload)}"


def _command() -> str:
    """Return the command line as it was typed, without where the files and the database are."""
    kept, left_out = [], {"--db", "--png", "--svg", "--html", "--csv", "--ncu-csv", "--ncu-report"}
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument in left_out:
            next(arguments, None)
        elif argument.split("=")[0] not in {*left_out, "--json", "--quiet", "-q", "--debug"}:
            kept.append(argument)
    return shlex.join(["opdb", *kept])


def _csv(found: Study) -> str:
    """Return a row for each operator of each model; a missing value is empty."""
    rows = list(_rows(found))
    return csv_text(list(rows[0]) if rows else [], rows)


def _rows(found: Study) -> Iterator[dict[str, Json]]:
    for model in found.models:
        of = identity(model.workload)
        of["input_size"] = "x".join(map(str, of["input_size"] or ()))
        for point in model.points:
            document = _point_document(model, point)
            bounds = {
                f"{peaks}_{what}_{name}": value
                for peaks in ("measured", "vendor")
                for what in ("time", "energy")
                for name, value in (
                    document.pop(f"{peaks}_{what}") or dict.fromkeys(("bound", "least", "reached"))
                ).items()
            }
            yield {
                **of,
                "device": found.device,
                "board": found.board,
                "mode": found.mode,
                **document,
                **bounds,
            }


# JSON


def document(found: Study) -> Json:
    """Return a study as JSON; every quantity in base SI."""
    return {
        "device": found.device,
        "board": found.board,
        "mode": found.mode,
        "peaks": {
            "measured": _peaks_document(found.measured),
            "vendor": _peaks_document(found.vendor),
        },
        "models": [_model_document(model) for model in found.models],
        "notes": list(found.notes),
    }


def _peaks_document(peaks: Peaks) -> Json:
    return {
        "source": peaks.source,
        "flops_per_s": dict(peaks.flops_per_s),
        "bytes_per_s": dict(peaks.bytes_per_s),
        "flops_per_j": dict(peaks.flops_per_j),
        "bytes_per_j": dict(peaks.bytes_per_j),
        "base_power_w": peaks.base_power_w,
        "notes": list(peaks.notes),
    }


def _model_document(model: ModelRoofline) -> Json:
    measured = model.answer.measured
    return {
        **identity(model.workload),
        "flops": model.flops,
        "bytes": model.bytes_moved,
        "intensity": model.intensity,
        "time_s": model.time_s,
        "energy_j": model.energy_j,
        "flops_per_s": model.flops_per_s,
        "flops_per_j": model.flops_per_j,
        "reached_time": model.reached("time"),
        "reached_energy": model.reached("energy"),
        "measured": None
        if measured is None
        else {
            "time_s": measured.time_s.mean,
            "energy_j": measured.energy_j.mean if measured.energy_j else None,
        },
        "operators_time_s": model.operators_s,
        "operators_energy_j": model.operators_j,
        "bounds": [_part_document(part) for part in model.parts()],
        "operators": [_point_document(model, point) for point in model.points],
        "unmeasured": [
            {"kind": c.kind, "configuration": c.key, "count": count}
            for c, count in model.unmeasured.items()
        ],
        "unsupported": dict(model.workload.unsupported),
    }


def _part_document(part: Part) -> Json:
    return {
        "bound": part.name,
        "calls": part.calls,
        "share_time": part.share_time,
        "share_energy": part.share_energy,
        "reached_time": part.reached_time,
        "reached_energy": part.reached_energy,
        "share_time_below_half": part.far,
    }


def _point_document(model: ModelRoofline, point: Point) -> dict[str, Json]:
    return {
        "kind": point.configuration.kind,
        "configuration": point.configuration.key,
        "count": point.count,
        "unit": point.unit,
        "metered": point.metered,
        "flops": point.flops,
        "bytes": point.bytes_moved,
        "intensity": point.intensity,
        "time_s": point.time_s,
        "energy_j": point.energy_j,
        "dynamic_energy_j": point.dynamic_energy_j,
        "flops_per_s": point.flops_per_s,
        "bytes_per_s": point.bytes_per_s,
        "flops_per_j": point.flops_per_j,
        "flops_per_dynamic_j": point.flops_per_dynamic_j,
        "share_time": model.share_time(point),
        "share_energy": model.share_energy(point),
        **_roofs_document("measured", point.measured),
        **_roofs_document("vendor", point.vendor),
    }


def _roofs_document(name: str, roofs: Roofs) -> Mapping[str, Json]:
    return {
        f"{name}_time": _bound_document(roofs.time),
        f"{name}_energy": _bound_document(roofs.energy),
    }


def _bound_document(bound: Bound | None) -> Json:
    if bound is None:
        return None
    return {"bound": bound.side, "least": bound.least, "reached": bound.reached}


# Text


def _print(found: Study) -> None:
    print(f"{found.device} ({found.board}), {found.mode}")
    units = _units(found)
    print_table(
        ("peaks", "memory", *units),
        [
            *_peaks_rows("measured", found.measured, "above base power", units),
            *_peaks_rows("data sheet", found.vendor, "at its power", units),
        ],
    )
    print(f"peaks {found.measured.source}; base power {show(found.measured.base_power_w, 'W')}")
    print(f"data sheet: {found.vendor.source}")
    for model in found.models:
        print()
        _print_model(model)
    if found.notes:
        print()
    for each in (*found.notes, *found.vendor.notes):
        print(f"note: {each}")


def _units(found: Study) -> list[str]:
    used = {p.unit for m in found.models for p in m.points if p.works and p.flops and p.unit}
    known = found.measured.flops_per_s
    return sorted(used, key=lambda unit: (known.get(unit, 0.0), unit))


def _peaks_rows(name: str, peaks: Peaks, energy_of: str, units: list[str]) -> list[tuple[str, ...]]:
    """Return a row of rates and one of rates an energy, each cell with its unit."""
    rates = [show(peaks.flops_per_s.get(unit), "FLOP/s") for unit in units]
    energies = [show(peaks.flops_per_j.get(unit), "FLOP/J") for unit in units]
    return [
        (name, show(peaks.bytes_per_s.get(MEMORY), "B/s"), *rates),
        (f"  {energy_of}", show(peaks.bytes_per_j.get(MEMORY), "B/J"), *energies),
    ]


def _print_model(model: ModelRoofline) -> None:
    prediction = model.answer.prediction
    print(f"{_title(model)}, {prediction.mode}")
    print(
        f"a pass: {show(model.flops, 'FLOP')}, {show(model.bytes_moved, 'B')}, "
        f"{_number(model.intensity)} FLOP/byte; predicted {show(model.time_s, 's')}, "
        f"{show(model.energy_j, 'J')}: {show(model.flops_per_s, 'FLOP/s')}, "
        f"{show(model.flops_per_j, 'FLOP/J')}"
    )
    if (run := model.answer.measured) is not None:
        energy_j = run.energy_j.mean if run.energy_j else None
        print(f"measured on this board: {show(run.time_s.mean, 's')}, {show(energy_j, 'J')}")
    print(
        f"of its operators' roofs it reaches {show_share(model.reached('time'))} (time), "
        f"{show_share(model.reached('energy'))} (energy)"
    )
    print_table(
        ("held back by", "calls", "time", "energy", "time: reached", "energy: reached",
         "time below half of the roof"),
        [
            (p.name, p.calls or "–", show_share(p.share_time), show_share(p.share_energy),
             show_share(p.reached_time), show_share(p.reached_energy), show_share(p.far))
            for p in model.parts()
        ],
    )  # fmt: skip
    working = [p for p in model.points if p.works]
    print_table(
        ("operator", "calls", "unit", "FLOP/byte", "FLOP/s", "byte/s", "FLOP/J", "bound", "time",
         "energy", "time: reached", "energy: reached", "of data sheet"),
        [_cells(model, p) for p in working[:_SHOWN]],
    )  # fmt: skip
    if len(working) > _SHOWN:
        more = counted(len(working) - _SHOWN, "more configuration")
        print(f"… and {more} (all with --json or --csv)")
    _print_without_flops(model, working)


def _cells(model: ModelRoofline, point: Point) -> tuple[object, ...]:
    time, energy = point.measured.time, point.measured.energy
    return (
        point.configuration.title,
        point.count,
        point.unit or "–",
        _number(point.intensity),
        show(point.flops_per_s, "", digits=3).strip(),
        show(point.bytes_per_s, "", digits=3).strip(),
        show(point.flops_per_j, "", digits=3).strip(),
        time.side if time else "–",
        show_share(model.share_time(point)),
        show_share(model.share_energy(point)),
        show_share(time.reached if time else None),
        show_share(energy.reached if energy else None),
        show_share(point.vendor.time.reached if point.vendor.time else None),
    )


def _print_without_flops(model: ModelRoofline, working: list[Point]) -> None:
    """Say what moves bytes alone, and what gives the device no work."""
    moving = [p for p in working if not p.flops]
    if moving:
        calls = sum(p.count for p in moving)
        moved = sum(p.count * p.bytes_moved for p in moving)
        share = sum(model.share_time(p) for p in moving)
        kinds = ", ".join(dict.fromkeys(p.configuration.kind for p in moving))
        of_time = f"{show_share(share)} of the time"
        print(f"without FLOPs (calls: {calls}): {show(moved, 'B')}, {of_time} ({kinds})")
    idle = sum(p.count for p in model.points if not p.works)
    if idle:
        print(f"calls that give the device no work: {idle}")


def _number(value: float | None) -> str:
    return "–" if value is None else rounded(value, 3)
