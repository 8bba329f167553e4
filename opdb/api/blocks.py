"""Predictions as people read them: lines of text, and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import rows as decided_rows
from opdb.api.fitting import memory_line
from opdb.api.unmeasured import estimated_blocks, first_rows, missing_blocks
from opdb.kinds import get_kind
from opdb.lookup.words import describe
from opdb.tables import Rows, of_cells
from opdb.units import rounded, show, show_share

if TYPE_CHECKING:
    from opdb.api.predictions import Convolution, Predicted
    from opdb.predict.figures import Amount
    from opdb.predict.layers import Layers

_CONVOLUTIONS = (
    *("kind", "input", "weight", "stride", "calls", "share of time", "share of energy"),
    *("time of a call", "energy of a call"),
)

_LAYERS = of_cells(*("module", "kind", "shape", "cost", "calls", "time", "share of time", "energy"))

_COMPARED = (
    *("model", "workload", "mode", "time", "95 % interval", "energy", "power", "throughput"),
    *("energy a sample", "rent, 1M samples", "electricity, 1M samples", "g CO2, 1M samples"),
    *("coverage", "fits", "measured", "predicted / measured"),
)


def predicted_blocks(found: Predicted) -> Iterator[str | Rows[Any]]:
    """Yield what people read of one prediction, the measured truth beside it."""
    from opdb.compose import shortfall

    answer, by = found.answer, found.conditions.algorithm
    prediction, lacks = answer.prediction, shortfall(answer.prediction)
    under = "" if by is None else f"convolutions by {by.name}, "
    yield (
        f"{prediction.workload.name}, {describe(prediction.workload)}, {prediction.mode}, {under}"
        f"on {prediction.device.name} ({prediction.board})"
        + ("" if lacks is None else f": {lacks}")
    )
    yield memory_line(answer.memory)
    yield _quantities(found)
    yield (
        f"coverage: calls {show_share(prediction.coverage_calls)}, "
        f"time {show_share(prediction.coverage_time)}, "
        f"energy {show_share(prediction.coverage_energy)}"
    )
    if found.convolutions and by is not None:
        yield f"convolutions by {by.name}, a call as it was benched:"
        yield from first_rows(_CONVOLUTIONS, [_convolution_row(c) for c in found.convolutions])
    yield from estimated_blocks(prediction.estimated)
    yield from missing_blocks(prediction.missing)
    if commands := found.how_to_measure:
        yield f"to measure what is missing, on the device: {commands}"
    for each in prediction.notes:
        yield f"note: {each}"
    if found.layers is not None:
        yield from layers_blocks(found.layers, found.conditions.top)


def _quantities(found: Predicted) -> Rows[Sequence[object]]:
    """Return time, energy, power and what they come to by the sample, predicted and measured."""
    prediction, measured = found.prediction, found.answer.measured
    header = ("", "predicted", "95 % interval")
    decided = decided_rows(found)
    rows = [
        _row("time", "s", prediction.time_s, prediction.time_interval_s),
        _row("energy", "J", prediction.energy_j, prediction.energy_interval_j),
        ("power", show(prediction.power_w, "W"), ""),
    ]
    if measured is None:
        return Rows(of_cells(*header), rows + [row[:3] for row in decided])
    energy_j = measured.energy_j.mean if measured.energy_j else None
    truth = (
        (show(measured.time_s.mean, "s"), found.answer.attribution_time),
        (show(energy_j, "J"), found.answer.attribution_energy),
        (show(measured.power_w, "W"), None),
    )
    beside = [
        (*row, value, f"{ratio:.3f}" if ratio is not None else "")
        for row, (value, ratio) in zip(rows, truth, strict=True)
    ]
    table = of_cells(*header, "measured", "predicted / measured")
    return Rows(table, beside + [(*row, "") for row in decided])


def _row(
    name: str, unit: str, value: float | None, interval: tuple[float, float] | None
) -> tuple[str, str, str]:
    if value is None:
        return name, show(None, unit), ""
    if interval is None:
        return name, f"at least {show(value, unit)}", "none: a lower bound"
    return name, show(value, unit), f"{show(interval[0], unit)} to {show(interval[1], unit)}"


def _convolution_row(convolution: Convolution) -> tuple[object, ...]:
    """Return a convolution as a person is shown it, under `_CONVOLUTIONS`."""
    share, cost = convolution.share, convolution.cost
    view = get_kind(share.configuration.kind).view(share.configuration)
    stride = view["stride"]
    return (
        share.configuration.title,
        _sizes(view.shape()),
        _sizes(view.shape("weight")),
        _sizes(stride) if isinstance(stride, list) else stride,
        share.count,
        show_share(share.share_time),
        show_share(share.share_energy),
        show(cost.time_s.mean if cost.time_s else None, "s"),
        show(cost.energy_j.mean if cost.energy_j else None, "J"),
    )


def _sizes(sizes: Collection[int]) -> str:
    return "x".join(map(str, sizes))


def layers_blocks(found: Layers, top: int | None) -> Iterator[str | Rows[Any]]:
    """Yield the layers in their order, what a pass takes beside them, and the sum."""
    shown = found.longest(top)
    rows: list[tuple[object, ...]] = [
        (
            each.path or "(model)",
            each.configuration.title,
            "x".join(map(str, each.shape or ())),
            each.status,
            each.count,
            *_amounts(found, each.time_s, each.energy_j),
        )
        for each in shown
    ]
    kept = {id(each) for each in shown}
    if hidden := [each for each in found.layers if id(each) not in kept]:
        time_s, energy_j = found.sums(hidden)
        count = sum(each.count for each in hidden)
        name = f"{len(hidden)} other layers"
        rows.append((name, "", "", "", count, *_amounts(found, time_s, energy_j)))
    rows += [
        (each.what, "", "", "", "", *_amounts(found, each.time_s, each.energy_j))
        for each in found.rest
        if each.time_s
    ]
    calls = sum(each.count for each in found.layers)
    whole = _amounts(found, *found.sums([*found.layers, *found.rest]))
    rows.append(("sum", "", "", "", calls, *whole))
    yield "layer by layer:"
    yield Rows(_LAYERS, rows)


def _amounts(found: Layers, time_s: float | None, energy_j: float | None) -> tuple[str, str, str]:
    return show(time_s, "s"), show_share(found.share(time_s)), show(energy_j, "J")


def compared_blocks(predicted: Sequence[Predicted]) -> Iterator[str | Rows[Any]]:
    """Yield one row a prediction; columns in which no prediction has anything are left out."""
    rows = [_compared_row(each) for each in predicted]
    kept = [n for n in range(len(_COMPARED)) if any(row[n] for row in rows)]
    places = dict.fromkeys(
        f"{p.device.name} ({p.board})" for p in (each.prediction for each in predicted)
    )
    for place in places:
        yield f"on {place}"
    if rows:
        header = of_cells(*(_COMPARED[n] for n in kept))
        yield Rows(header, [[row[n] for n in kept] for row in rows])


def _compared_row(one: Predicted) -> tuple[str, ...]:
    answer, decided = one.answer, one.figures
    found, measured = answer.prediction, answer.measured
    least, most = ("", "") if found.complete else ("at least ", "at most ")
    rate, each_j = decided.samples_per_s, decided.energy_per_sample_j
    spread = found.time_interval_s
    ratio = answer.attribution_time
    return (
        found.workload.name,
        describe(found.workload),
        found.mode,
        _known(least, show(found.time_s, "s")),
        "" if spread is None else f"{show(spread[0], 's')} to {show(spread[1], 's')}",
        _known(least, show(found.energy_j, "J")),
        show(found.power_w, "W"),
        "–" if rate is None else f"{most}{rounded(rate.value, 4)} {decided.sample}s/s",
        _known(least, show(None if each_j is None else each_j.value, "J")),
        *(
            _amount(least, amount)
            for amount in (
                decided.rent_per_million_samples,
                decided.electricity_per_million_samples,
                decided.co2_per_million_samples_g,
            )
        ),
        show_share(found.coverage_time),
        {True: "yes", False: "no", None: "–"}[answer.memory.fits],
        "" if measured is None else show(measured.time_s.mean, "s"),
        "" if ratio is None else f"{ratio:.3f}",
    )


def _known(bound: str, shown: str) -> str:
    """Return a shown quantity with its bound before it; a missing one as it is."""
    return shown if shown == "–" else f"{bound}{shown}"


def _amount(bound: str, amount: Amount | None) -> str:
    return "" if amount is None else f"{bound}{rounded(amount.value, 4)}"
