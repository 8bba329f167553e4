"""`opdb validate`: predictions held against measured runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.cli import options, trust
from opdb.cli.console import note, print_json, print_table
from opdb.cli.predict import check_share
from opdb.cli.selection import describe, identity
from opdb.errors import CheckError, InputError, UnknownNameError
from opdb.records import Json
from opdb.units import counted, show, show_share

if TYPE_CHECKING:
    from opdb.learning import Leaving
    from opdb.predict import Answer


_HOW = "what the models are compiled to is not known (opdb harvest … --mode compile)"


def run(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Models.  [default: all]")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within", metavar="SHARE", help="Exit 1 if an error of time or energy is larger."
        ),
    ] = None,
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Instead: how often two independent measurements agree within their intervals.",
        ),
    ] = False,
    transfer: Annotated[
        bool,
        typer.Option(
            "--transfer",
            help="Instead: predict each run from another board's costs, with and without factors.",
        ),
    ] = False,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Instead: kernels that a model launched and its operators did not, or reversed.",
        ),
    ] = False,
    estimates: Annotated[
        str | None,
        typer.Option(
            "--estimates",
            metavar="WHAT",
            help="Instead: leave out one model, family or batch_size after the other, and predict "
            "it with estimates learned from the rest; beside simpler rules.",
        ),
    ] = None,
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            help="Runs in these modes alone, as in compile,graph.  [default: all predicted ones]",
        ),
    ] = None,
    device: options.DeviceName = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Hold predictions against the measured runs of models: a table and the error's distribution.

    Every prediction is for the board of its run. Its interval rests on the other models alone.
    Runs with calls that were never measured, or that no operator describes, are listed apart.
    Four further checks look at what predictions rest on; each prints a table of its own.
    """
    check_share("--within", within)
    asked = [
        check
        for check, is_asked in (
            (trust.duplicates, duplicates),
            (trust.transfer, transfer),
            (trust.kernels, kernels),
        )
        if is_asked
    ]
    leaving = None if estimates is None else _leaving(estimates)
    if len(asked) + (leaving is not None) + (within is not None) > 1:
        raise InputError(
            "--duplicates, --transfer, --kernels, --estimates and --within: give one at a time"
        )
    from opdb.predict import MODES, Predictor, check_mode, choose_device
    from opdb.store import open_store

    chosen = options.parse_modes(modes)
    if chosen and (asked or leaving is not None):
        raise InputError("--mode is about the table of predictions; give it without other checks")
    for mode in chosen:
        check_mode(mode)
    with open_store(db, create=False) as store:
        known = store.workload_names()
        for name in models or []:
            if name not in known:
                raise UnknownNameError("model", name, known)
        predictor = Predictor(store, choose_device(store, device))
        if asked:
            asked[0](store, predictor, models or [], as_json=as_json)
            return
        if leaving is not None:
            from opdb.cli.left_out import left_out

            left_out(store, predictor, models or [], leaving, as_json=as_json, quiet=quiet)
            return
        answers = predictor.answers(models or [], chosen or MODES)
        unknown = predictor.uncompiled(chosen or MODES)
    left = f"left out: {counted(unknown, 'run')} in modes that compile: {_HOW}" if unknown else None
    if not answers:
        run_first = "no measured run to validate against; run opdb measure on the device"
        raise InputError(run_first if left is None else f"{run_first}; {left}")
    if left is not None:
        note(left, quiet=quiet or as_json)
    whole = [answer for answer in answers if _is_whole(answer)]
    partial = [answer for answer in answers if not _is_whole(answer)]
    rows = [_row(answer) for answer in whole]
    summary = _summary(rows)
    if as_json:
        incomplete = [_row(answer) for answer in partial]
        print_json({"rows": rows, "incomplete": incomplete, "summary": summary})
    else:
        _print(whole, summary)
        _print_incomplete(partial)
    if within is not None:
        _check(within, summary)


def _is_whole(answer: Answer) -> bool:
    """Whether every call of a run is described, and measured."""
    return not (answer.prediction.missing or answer.prediction.workload.unsupported)


def _check(within: float, summary: dict[str, Json]) -> None:
    found = [errors["largest"] for errors in summary.values() if errors]
    if not found:
        raise CheckError("no run has all its calls measured, so no error can be told")
    if max(found) > within:
        raise CheckError(f"largest error {show_share(max(found))}, asked for {show_share(within)}")


def _leaving(name: str) -> Leaving:
    from opdb.learning import NAMES

    if name not in NAMES:
        raise UnknownNameError("group to leave out", name, NAMES)
    return cast("Leaving", name)


def _row(answer: Answer) -> dict[str, Json]:
    prediction, measured = answer.prediction, answer.measured
    assert measured is not None
    energy_j = measured.energy_j.mean if measured.energy_j else None
    return {
        **identity(prediction.workload),
        "mode": prediction.mode,
        "board": prediction.board,
        "coverage_calls": prediction.coverage_calls,
        "predicted_time_s": prediction.time_s,
        "measured_time_s": measured.time_s.mean,
        "predicted_energy_j": prediction.energy_j,
        "measured_energy_j": energy_j,
        "attribution_time": answer.attribution_time,
        "attribution_energy": answer.attribution_energy,
        "time_interval_s": None
        if prediction.time_interval_s is None
        else list(prediction.time_interval_s),
        "energy_interval_j": None
        if prediction.energy_interval_j is None
        else list(prediction.energy_interval_j),
        "inside_interval_time": _inside(measured.time_s.mean, prediction.time_interval_s),
        "inside_interval_energy": _inside(energy_j, prediction.energy_interval_j),
    }


def _inside(value: float | None, interval: tuple[float, float] | None) -> bool | None:
    if value is None or interval is None:
        return None
    return interval[0] <= value <= interval[1]


def _summary(rows: Sequence[dict[str, Json]]) -> dict[str, Json]:
    return {
        name: _errors(
            [abs(row[f"attribution_{name}"] - 1) for row in rows if row[f"attribution_{name}"]],
            [i for row in rows if (i := row[f"inside_interval_{name}"]) is not None],
        )
        for name in ("time", "energy")
    }


def _errors(errors: Sequence[float], inside: Sequence[bool]) -> Json:
    if not errors:
        return None
    ordered = sorted(errors)
    return {
        "count": len(ordered),
        "median": statistics.median(ordered),
        "percentile_95": statistics.quantiles(ordered, n=20, method="inclusive")[-1]
        if len(ordered) > 1
        else ordered[0],
        "largest": ordered[-1],
        "inside_interval": sum(inside) / len(inside) if inside else None,
    }


def _print(answers: Sequence[Answer], summary: dict[str, Json]) -> None:
    if not answers:
        return
    rows = []
    for answer in answers:
        prediction, measured = answer.prediction, answer.measured
        assert measured is not None
        rows.append(
            (
                *_names(answer),
                show(prediction.time_s, "s"),
                show(measured.time_s.mean, "s"),
                _ratio(answer.attribution_time),
                show(prediction.energy_j, "J"),
                show(measured.energy_j.mean if measured.energy_j else None, "J"),
                _ratio(answer.attribution_energy),
            )
        )
    header = ("model", "workload", "mode", "time", "measured", "ratio", "energy", "measured")
    print_table((*header, "ratio"), rows)
    for name, errors in summary.items():
        if errors:
            print(
                f"{name}: median error {show_share(errors['median'])}, "
                f"95th percentile {show_share(errors['percentile_95'])}, "
                f"largest {show_share(errors['largest'])}; "
                f"inside the interval {show_share(errors['inside_interval'])} of {errors['count']}"
            )


def _print_incomplete(answers: Sequence[Answer]) -> None:
    """List the runs of which a part is missing in the prediction, and how much is covered."""
    if not answers:
        return
    print(f"left out, for not all calls are measured: {counted(len(answers), 'run')}")
    rows = [(*_names(a), show_share(a.prediction.coverage_calls)) for a in answers]
    print_table(("model", "workload", "mode", "calls covered"), rows)


def _names(answer: Answer) -> tuple[str, str, str]:
    workload = answer.prediction.workload
    return workload.name, describe(workload), answer.prediction.mode


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
