"""Predictions as data and as people read them: their tables, and the lines around these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import (
    LINES,
    bounded,
    figure_columns,
    interval_document,
    prediction_lines,
)
from opdb.api.documents import memory_document, quantity_document
from opdb.api.fitting import memory_line
from opdb.api.shares import (
    ESTIMATED,
    SHARES,
    estimated_blocks,
    first_rows,
    missing_blocks,
    share_columns,
)
from opdb.kinds import View, get_kind
from opdb.lookup.words import describe, workload_columns
from opdb.records import Json, Quantity
from opdb.tables import MISSING, RATIO, Column, Rows, Table
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.api.predictions import Convolution, Predicted
    from opdb.compose import Share
    from opdb.predict import Answer

FITS = {True: "yes", False: "no", None: MISSING}


def _sizes(sizes: int | Collection[int]) -> str:
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def _view(convolution: Convolution) -> View:
    configuration = convolution.share.configuration
    return get_kind(configuration.kind).view(configuration)


def _share(convolution: Convolution) -> Share:
    return convolution.share


def _mean(quantity: Quantity | None, unit: str) -> str:
    return show(None if quantity is None else quantity.mean, unit)


def _convolutions() -> Table[Convolution]:
    kind, *share = share_columns(_share)
    return Table(
        kind,
        Column(title="input", text=lambda row: _sizes(_view(row).shape())),
        Column(title="weight", text=lambda row: _sizes(_view(row).shape("weight"))),
        Column(title="stride", text=lambda row: _sizes(_view(row)["stride"])),
        *share,
        Column("parameters", lambda row: dict(row.share.configuration.parameters)),
        Column("inputs", lambda row: dict(row.share.configuration.inputs)),
        Column(
            "time_s",
            lambda row: quantity_document(row.cost.time_s),
            title="time of a call",
            text=lambda row: _mean(row.cost.time_s, "s"),
        ),
        Column(
            "energy_j",
            lambda row: quantity_document(row.cost.energy_j),
            title="energy of a call",
            text=lambda row: _mean(row.cost.energy_j, "J"),
        ),
    )


CONVOLUTIONS = _convolutions()
"""A convolution and what a call of it was benched to cost."""

MEASURED: Table[Answer] = Table(
    Column("time_s", lambda row: row.measured and row.measured.time_s.mean),
    Column(
        "energy_j",
        lambda row: row.measured and row.measured.energy_j and row.measured.energy_j.mean,
    ),
    Column("attribution_time", lambda row: row.attribution_time),
    Column("attribution_energy", lambda row: row.attribution_energy),
)
"""What was measured beside a prediction."""


def _coverage(one: Predicted) -> Json:
    found = one.prediction
    return {
        "calls": found.coverage_calls,
        "time": found.coverage_time,
        "energy": found.coverage_energy,
    }


def predictions(target: float | None = None) -> Table[Predicted]:
    """Return the table of predictions; `target` is a share they are to reach, as `meets` says."""
    return Table(
        *workload_columns(lambda one: one.prediction.workload),
        Column("device", lambda one: one.prediction.device.slug),
        Column("board", lambda one: one.prediction.board),
        Column("setting", lambda one: dict(one.answer.setting)),
        Column("mode", lambda one: one.prediction.mode, title="mode"),
        Column("complete", lambda one: one.prediction.complete),
        Column(
            "time_s",
            lambda one: one.prediction.time_s,
            title="time",
            text=lambda one: bounded(one.figures, one.figures.time_s, "s"),
        ),
        Column(
            "time_interval_s",
            lambda one: interval_document(one.figures.time_s),
            title="95 % interval",
            unit="s",
        ),
        Column(
            "energy_j",
            lambda one: one.prediction.energy_j,
            title="energy",
            text=lambda one: bounded(one.figures, one.figures.energy_j, "J"),
        ),
        Column("energy_interval_j", lambda one: interval_document(one.figures.energy_j)),
        Column("power_w", lambda one: one.prediction.power_w, title="power", unit="W"),
        Column(
            "coverage",
            _coverage,
            title="coverage",
            text=lambda one: show_share(one.prediction.coverage_time),
            last=True,
        ),
        Column("target", lambda one: target),
        Column("target_met", lambda one: None if target is None else one.answer.meets(target)),
        Column("measured", lambda one: one.answer.measured and MEASURED.document(one.answer)),
        Column("missing", lambda one: SHARES.documents(one.prediction.missing)),
        Column("estimated", lambda one: ESTIMATED.documents(one.prediction.estimated)),
        Column("unsupported", lambda one: dict(one.prediction.workload.unsupported)),
        Column(
            "fits",
            lambda one: one.answer.memory.fits,
            title="fits",
            text=lambda one: FITS[one.answer.memory.fits],
            last=True,
        ),
        Column("memory", lambda one: memory_document(one.answer.memory)),
        Column("notes", lambda one: list(one.prediction.notes)),
        *figure_columns(lambda one: one.figures),
        Column(
            title="measured",
            get=lambda one: one.answer.measured and one.answer.measured.time_s.mean,
            unit="s",
            last=True,
        ),
        Column(
            title="predicted / measured",
            get=lambda one: one.answer.attribution_time,
            unit=RATIO,
            last=True,
        ),
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
    alone = LINES.without("measured", "predicted / measured")
    yield Rows(alone if answer.measured is None else LINES, prediction_lines(found))
    yield (
        f"coverage: calls {show_share(prediction.coverage_calls)}, "
        f"time {show_share(prediction.coverage_time)}, "
        f"energy {show_share(prediction.coverage_energy)}"
    )
    if found.convolutions and by is not None:
        yield f"convolutions by {by.name}, a call as it was benched:"
        yield from first_rows(CONVOLUTIONS, found.convolutions)
    yield from estimated_blocks(prediction.estimated)
    yield from missing_blocks(prediction.missing)
    if commands := found.how_to_measure:
        yield f"to measure what is missing, on the device: {commands}"
    for each in prediction.notes:
        yield f"note: {each}"
    if found.layers is not None:
        from opdb.api.layered import layers_blocks

        yield from layers_blocks(found.layers, found.conditions.top)


def compared_blocks(predicted: Sequence[Predicted]) -> Iterator[str | Rows[Any]]:
    """Yield one row a prediction; columns in which no prediction has anything are left out."""
    places = dict.fromkeys(
        f"{p.device.name} ({p.board})" for p in (each.prediction for each in predicted)
    )
    for place in places:
        yield f"on {place}"
    if predicted:
        table = predictions()
        empty = [
            column.title
            for column in table.columns
            if column.title and all(column.cell(each) == MISSING for each in predicted)
        ]
        yield Rows(table.without(*empty), predicted)
