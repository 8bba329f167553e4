"""`opdb predict`: time and energy of a model from the costs of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import forcing, options
from opdb.cli.console import print_json, print_table
from opdb.cli.forcing import quantity_document
from opdb.cli.selection import describe, find_workload, identity, request_for
from opdb.errors import CheckError, InputError
from opdb.garbage import uncollected
from opdb.records import Json, Quantity
from opdb.units import counted, show, show_share

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.cli.forcing import Convolution
    from opdb.compose import EstimatedShare, Share
    from opdb.predict import Answer

_SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""

_SHARES = ("kind", "calls", "share of time", "share of energy")


@uncollected()
def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or summary file.")],
    target: options.Target = None,
    algorithm: options.OneAlgorithm = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="How work is issued: eager, graph, compile or compile:reduce-overhead.  "
            "[default: eager; graph where --algorithm forces one]",
        ),
    ] = None,
    batch_size: options.BatchSize = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    phase: options.PhaseName = None,
    optimizer: options.Optimizer = None,
    grad_accum_steps: options.Accumulation = None,
    autocast: options.Autocast = None,
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Predict for this board; the beginning of its UUID will do.  [default: the one "
            "that measured the model, else the one that covers it best; by a forced algorithm the "
            "latter]",
        ),
    ] = None,
    estimates: Annotated[
        bool,
        typer.Option(
            "--estimates/--no-estimates",
            help="Estimate what was never measured, or leave it out.",
        ),
    ] = True,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict time and energy of one pass of a model, with interval, coverage and what is missing.

    Where the model was measured on the same board, the measured truth stands beside it.

    With --algorithm convolutions cost what opdb bench conv2d --algorithm measured, each is shown,
    and what opdb sweep ran under that algorithm is the truth. What it cannot run is missing.
    """
    check_share("--target", target)
    by = forcing.one_algorithm(algorithm)
    chosen = forcing.mode_under(by, mode)
    said = options.model_options(
        batch_size,
        input_size,
        dtype,
        memory_format,
        phase,
        optimizer,
        grad_accum_steps,
        autocast,
    )
    request = request_for(model, said)
    from opdb.predict import Predictor, check_forced, choose_device
    from opdb.store import open_store

    forced = by is not None and by.is_forced
    if by is not None and forced:  # told before a database is opened
        check_forced(by.name, request.name, chosen, request.phase)
    with open_store(db, create=False, sweeps=forced) as store:  # sets of sweeps hold what is forced
        workload = find_workload(store, request, said)
        under = forcing.settings_under(by)
        predictor = Predictor(store, choose_device(store, device), under, estimates=estimates)
        on = None if board is None else predictor.board(board)
        answer = predictor.answer(workload, chosen, on)
        convolutions = [] if by is None else forcing.convolutions(predictor, answer)
    if as_json:
        added = {} if by is None else _document_under(by, answer, convolutions)
        print_json(document(answer, target) | added)
    else:
        _print(answer, target, by, convolutions)
    if target is not None and not answer.meets(target):
        raise CheckError(_why_missed(answer, target))


def check_share(option: str, value: float | None) -> None:
    """Check a share that an option gives.

    Raises:
        InputError: it is not between 0 and 1.
    """
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{option} {value:g}: give a share between 0 and 1, such as 0.9")


def document(answer: Answer, target: float | None) -> Json:
    """Return an answer as JSON, under the names that every command uses."""
    prediction, measured = answer.prediction, answer.measured
    workload = prediction.workload
    return {
        **identity(workload),
        "device": prediction.device.slug,
        "board": prediction.board,
        "setting": dict(answer.setting),
        "mode": prediction.mode,
        "time_s": prediction.time_s,
        "time_interval_s": _listed(prediction.time_interval_s),
        "energy_j": prediction.energy_j,
        "energy_interval_j": _listed(prediction.energy_interval_j),
        "power_w": prediction.power_w,
        "coverage": {
            "calls": prediction.coverage_calls,
            "time": prediction.coverage_time,
            "energy": prediction.coverage_energy,
        },
        "target": target,
        "target_met": None if target is None else answer.meets(target),
        "measured": None
        if measured is None
        else {
            "time_s": measured.time_s.mean,
            "energy_j": measured.energy_j.mean if measured.energy_j else None,
            "attribution_time": answer.attribution_time,
            "attribution_energy": answer.attribution_energy,
        },
        "missing": [_share_document(share) for share in prediction.missing],
        "estimated": [_estimated_document(share) for share in prediction.estimated],
        "unsupported": dict(workload.unsupported),
        "notes": list(prediction.notes),
    }


def _document_under(by: Algorithm, answer: Answer, convolutions: Sequence[Convolution]) -> Json:
    """Return what an algorithm adds to an answer's document, or says otherwise there."""
    return {
        "algorithm": by.name,
        "convolutions": [{**_share_document(c.share), **c.document} for c in convolutions],
        "missing": [
            {**_share_document(share), "reason": answer.refused.get(share.configuration.key)}
            for share in answer.prediction.missing
        ],
    }


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _share_document(share: Share) -> Json:
    return {
        "kind": share.configuration.kind,
        "pass": share.configuration.pass_name,
        "configuration": share.configuration.key,
        "count": share.count,
        "share_time": share.share_time,
        "share_energy": share.share_energy,
    }


def _estimated_document(share: EstimatedShare) -> Json:
    cost = share.cost
    return {
        **_share_document(share),
        "time_s": quantity_document(cost.time_s),
        "dynamic_energy_j": quantity_document(cost.dynamic_energy_j),
        "host_time_s": {form: quantity_document(q) for form, q in cost.host_time_s.items()},
    }


def _print(
    answer: Answer,
    target: float | None,
    by: Algorithm | None,
    convolutions: Sequence[Convolution],
) -> None:
    prediction, measured = answer.prediction, answer.measured
    workload = prediction.workload
    under = "" if by is None else f"convolutions by {by.name}, "
    print(
        f"{workload.name}, {describe(workload)}, {prediction.mode}, {under}on "
        f"{prediction.device.name} ({prediction.board})"
    )
    rows = [_row("time", "s", prediction.time_s, prediction.time_interval_s)]
    rows.append(_row("energy", "J", prediction.energy_j, prediction.energy_interval_j))
    rows.append(("power", show(prediction.power_w, "W"), ""))
    if measured is None:
        print_table(("a pass", "predicted", "95 % interval"), rows)
    else:
        truth = (
            (show(measured.time_s.mean, "s"), answer.attribution_time),
            (
                show(measured.energy_j.mean if measured.energy_j else None, "J"),
                answer.attribution_energy,
            ),
            (show(measured.power_w, "W"), None),
        )
        print_table(
            ("a pass", "predicted", "95 % interval", "measured", "predicted / measured"),
            [
                (*row, value, f"{ratio:.3f}" if ratio is not None else "")
                for row, (value, ratio) in zip(rows, truth, strict=True)
            ],
        )
    print(
        f"coverage: calls {show_share(prediction.coverage_calls)}, "
        f"time {show_share(prediction.coverage_time)}, "
        f"energy {show_share(prediction.coverage_energy)}"
    )
    if convolutions and by is not None:
        print(f"convolutions by {by.name}, a call as it was benched:")
        print_table(forcing.HEADER, [each.row for each in convolutions[:_SHOWN]])
        _print_hidden(convolutions)
    _print_estimated(prediction.estimated)
    _print_missing(prediction.missing)
    if commands := forcing.how_to_measure(answer, by):
        print(f"to measure them, on the device: {commands}")
    for each in prediction.notes:
        print(f"note: {each}")
    if target is not None and answer.meets(target):
        print(f"target {target:g}: met")


def _row(
    name: str, unit: str, value: float | None, interval: tuple[float, float] | None
) -> tuple[str, str, str]:
    spread = "" if interval is None else f"{show(interval[0], unit)} to {show(interval[1], unit)}"
    return name, show(value, unit), spread


def _print_estimated(estimated: Sequence[EstimatedShare]) -> None:
    if estimated:
        print("estimated from operators that were measured:")
        rows = [(*_share_row(share), _spread(share.cost.time_s)) for share in estimated[:_SHOWN]]
        print_table((*_SHARES, "time of a call"), rows)
        _print_hidden(estimated)


def _spread(quantity: Quantity | None) -> str:
    if quantity is None or quantity.low is None or quantity.high is None:
        return show(None, "s")
    return f"{show(quantity.low, 's')} to {show(quantity.high, 's')}"


def _print_missing(missing: Sequence[Share]) -> None:
    if missing:
        print("missing (shares estimated from operations and bytes):")
        print_table(_SHARES, [_share_row(share) for share in missing[:_SHOWN]])
        _print_hidden(missing)


def _share_row(share: Share) -> tuple[str, int, str, str]:
    return (
        share.configuration.title,
        share.count,
        show_share(share.share_time),
        show_share(share.share_energy),
    )


def _print_hidden(listed: Sequence[object]) -> None:
    if len(listed) > _SHOWN:
        more = counted(len(listed) - _SHOWN, "more configuration")
        print(f"… and {more} (all with --json)")


def _why_missed(answer: Answer, target: float) -> str:
    prediction = answer.prediction
    why = []
    if prediction.workload.unsupported:
        why.append("the model makes calls that no operator describes")
    for name, share in prediction.coverages.items():
        if share < target:
            why.append(f"coverage of {name} is {share:.3f}")
    for name, ratio in (("time", answer.attribution_time), ("energy", answer.attribution_energy)):
        if ratio is not None and abs(ratio - 1) > 1 - target:
            why.append(f"attribution of {name} is {ratio:.3f}")
    return f"target {target:g} missed: " + ", ".join(why)
