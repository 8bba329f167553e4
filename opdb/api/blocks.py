"""Predictions as people read them: lines of text, and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import rows as decided_rows
from opdb.api.deciding import shown_value
from opdb.api.fitting import memory_line
from opdb.api.unmeasured import estimated_blocks, first_rows, missing_blocks
from opdb.kinds import View, get_kind
from opdb.lookup.words import describe
from opdb.tables import MISSING, RATIO, SHARE, Column, Rows, Table, of_cells
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.api.predictions import Convolution, Predicted
    from opdb.predict.figures import Amount
    from opdb.predict.layers import Layers

FITS = {True: "yes", False: "no", None: MISSING}

_LAYERS = of_cells(*("module", "kind", "shape", "cost", "calls", "time", "share of time", "energy"))


def _sizes(sizes: int | Collection[int]) -> str:
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def _view(convolution: Convolution) -> View:
    configuration = convolution.share.configuration
    return get_kind(configuration.kind).view(configuration)


CONVOLUTIONS: Table[Convolution] = Table(
    Column(title="kind", get=lambda row: row.share.configuration.title),
    Column(title="input", text=lambda row: _sizes(_view(row).shape())),
    Column(title="weight", text=lambda row: _sizes(_view(row).shape("weight"))),
    Column(title="stride", text=lambda row: _sizes(_view(row)["stride"])),
    Column(title="calls", get=lambda row: row.share.count),
    Column(title="share of time", get=lambda row: row.share.share_time, unit=SHARE),
    Column(title="share of energy", get=lambda row: row.share.share_energy, unit=SHARE),
    Column(
        title="time of a call", get=lambda row: row.cost.time_s and row.cost.time_s.mean, unit="s"
    ),
    Column(
        title="energy of a call",
        get=lambda row: row.cost.energy_j and row.cost.energy_j.mean,
        unit="J",
    ),
)
"""A convolution and what a call of it was benched to cost."""


def shown_amount(amount: Amount | None, unit: str) -> str:
    """Return an amount as people read it; a dash where it is not known."""
    if amount is None:
        return MISSING
    return show(amount.value, unit) if unit == "s" else shown_value(amount.value, unit)


def _bounded(
    one: Predicted, amount: Amount | None, unit: str = "", bound: str = "at least "
) -> str:
    """Return an amount, as a bound where a part of the pass has no cost."""
    is_bound = amount is not None and not one.prediction.complete
    return f"{bound if is_bound else ''}{shown_amount(amount, unit)}"


COMPARED: Table[Predicted] = Table(
    Column(title="model", get=lambda one: one.prediction.workload.name),
    Column(title="workload", text=lambda one: describe(one.prediction.workload)),
    Column(title="mode", get=lambda one: one.prediction.mode),
    Column(title="time", text=lambda one: _bounded(one, one.figures.time_s, "s")),
    Column(
        title="95 % interval",
        get=lambda one: one.prediction.time_interval_s and list(one.prediction.time_interval_s),
        unit="s",
    ),
    Column(title="energy", text=lambda one: _bounded(one, one.figures.energy_j, "J")),
    Column(title="power", get=lambda one: one.prediction.power_w, unit="W"),
    Column(
        title="throughput",
        text=lambda one: _bounded(
            one, one.figures.samples_per_s, f"{one.figures.sample}s/s", "at most "
        ),
    ),
    Column(
        title="energy a sample",
        text=lambda one: _bounded(one, one.figures.energy_per_sample_j, "J"),
    ),
    Column(
        title="rent, 1M samples",
        text=lambda one: _bounded(one, one.figures.rent_per_million_samples),
    ),
    Column(
        title="electricity, 1M samples",
        text=lambda one: _bounded(one, one.figures.electricity_per_million_samples),
    ),
    Column(
        title="g CO2, 1M samples",
        text=lambda one: _bounded(one, one.figures.co2_per_million_samples_g),
    ),
    Column(title="coverage", get=lambda one: one.prediction.coverage_time, unit=SHARE),
    Column(title="fits", text=lambda one: FITS[one.answer.memory.fits]),
    Column(
        title="measured",
        get=lambda one: one.answer.measured and one.answer.measured.time_s.mean,
        unit="s",
    ),
    Column(title="predicted / measured", get=lambda one: one.answer.attribution_time, unit=RATIO),
)
"""A prediction beside others."""


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
        rows = [CONVOLUTIONS.cells(each) for each in found.convolutions]
        yield from first_rows(CONVOLUTIONS.header, rows)
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
    places = dict.fromkeys(
        f"{p.device.name} ({p.board})" for p in (each.prediction for each in predicted)
    )
    for place in places:
        yield f"on {place}"
    if predicted:
        empty = [
            column.title
            for column in COMPARED.columns
            if column.title and all(column.cell(each) == MISSING for each in predicted)
        ]
        yield Rows(COMPARED.without(*empty), predicted)
