"""A roofline study as data, as CSV, and as text: peaks, models, their operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from opdb.errors import NothingMeasuredError
from opdb.predict.predictor import predictor_for
from opdb.records import Json, Mode, Workload
from opdb.spec import title, workload_columns
from opdb.store import Store
from opdb.studies.roofline.counters import MEMORY, CountersSeen, seen_by_counters
from opdb.studies.roofline.points import (
    ModelRoofline,
    Peaks,
    Point,
    RoofBound,
    SideShare,
    Study,
    study,
)
from opdb.tables import SHARE, Column, Listing, Report, Rows, Table
from opdb.units import plural, rounded, show, show_share

_SHOWN = 12


@dataclass(frozen=True)
class Placed:
    study: Study
    model: ModelRoofline
    point: Point

    @property
    def reached(self) -> tuple[float | None, float | None, float | None]:
        """The share reached of the measured roofs of time and energy, and of the vendor's."""
        roofs = (self.point.measured.time, self.point.measured.energy, self.point.vendor.time)
        time, energy, vendor = (bound.reached if bound else None for bound in roofs)
        return time, energy, vendor


def _rate(value: float | None) -> str:
    return show(value, "", digits=3).strip()


def _number(value: float | None) -> str:
    return "–" if value is None else rounded(value, 3)


def _of_point(
    name: str, title: str | None = None, text: Callable[[Any], str] | None = None
) -> Column[Placed]:
    def get(row: Placed) -> Json:
        return getattr(row.point, name)

    return Column(name, get, title, text=None if text is None else lambda row: text(get(row)))


def _bound(name: str, of: Any) -> Column[Placed]:
    def get(row: Placed) -> Json:
        bound: RoofBound | None = of(row.point)
        if bound is None:
            return None
        return {"bound": bound.side, "least": bound.least, "reached": bound.reached}

    return Column(name, get, members=("bound", "least", "reached"))


_OPERATOR: tuple[Column[Placed], ...] = (
    Column(title="operator", text=lambda row: row.point.configuration.title),
    Column("kind", lambda row: row.point.configuration.kind),
    Column("configuration", lambda row: row.point.configuration.key),
    _of_point("count", "calls"),
    _of_point("unit", "unit", lambda unit: unit or "–"),
    _of_point("metered"),
    _of_point("flops"),
    Column("bytes", lambda row: row.point.bytes_moved),
    _of_point("intensity", "FLOP/byte", _number),
    _of_point("time_s"),
    _of_point("energy_j"),
    _of_point("dynamic_energy_j"),
    _of_point("flops_per_s", "FLOP/s", _rate),
    _of_point("bytes_per_s", "byte/s", _rate),
    _of_point("flops_per_j", "FLOP/J", _rate),
    Column(
        title="bound",
        get=lambda row: row.point.measured.time.side if row.point.measured.time else None,
    ),
    Column("share_time", lambda r: r.model.share_time(r.point), title="time", unit=SHARE),
    Column("share_energy", lambda r: r.model.share_energy(r.point), title="energy", unit=SHARE),
    Column(title="time: reached", get=lambda row: row.reached[0], unit=SHARE),
    Column(title="energy: reached", get=lambda row: row.reached[1], unit=SHARE),
    Column(title="of data sheet", get=lambda row: row.reached[2], unit=SHARE),
    _bound("measured_time", lambda point: point.measured.time),
    _bound("measured_energy", lambda point: point.measured.energy),
    _bound("vendor_time", lambda point: point.vendor.time),
    _bound("vendor_energy", lambda point: point.vendor.energy),
)

OPERATORS: Table[Placed] = Table(*_OPERATOR)

LINES: Table[Placed] = Table(
    *workload_columns(lambda row: row.model.workload),
    Column("device", lambda row: row.study.device),
    Column("board", lambda row: row.study.board),
    Column("mode", lambda row: row.study.mode),
    *_OPERATOR,
)

PARTS: Table[SideShare] = Table(
    Column("bound", lambda part: part.name, title="held back by"),
    Column("calls", lambda p: p.calls, title="calls", text=lambda part: part.calls or "–"),
    Column("share_time", lambda part: part.share_time, title="time", unit=SHARE),
    Column("share_energy", lambda part: part.share_energy, title="energy", unit=SHARE),
    Column("reached_time", lambda part: part.reached_time, title="time: reached", unit=SHARE),
    Column("reached_energy", lambda p: p.reached_energy, title="energy: reached", unit=SHARE),
)


def _of_model(name: str) -> Column[ModelRoofline]:
    attribute = "bytes_moved" if name == "bytes" else name
    return Column(name, lambda model: getattr(model, attribute))


MODELS: Table[ModelRoofline] = Table(
    *workload_columns(lambda model: model.workload),
    *map(_of_model, ("flops", "bytes", "intensity", "time_s", "energy_j")),
    *map(_of_model, ("flops_per_s", "flops_per_j")),
    Column("reached_time", lambda model: model.reached("time")),
    Column("reached_energy", lambda model: model.reached("energy")),
    Column("measured", lambda model: _measured(model)),
    Column("operators_time_s", lambda model: model.operators_s),
    Column("operators_energy_j", lambda model: model.operators_j),
    Column("bounds", lambda model: PARTS.documents(model.parts())),
    Column(
        "unmeasured",
        lambda model: [
            {"kind": c.kind, "configuration": c.key, "count": count}
            for c, count in model.unmeasured.items()
        ],
    ),
    Column("unsupported", lambda model: dict(model.workload.unsupported)),
)

PEAKS: Table[Peaks] = Table(
    Column("source", lambda peaks: peaks.source),
    Column("flops_per_s", lambda peaks: dict(peaks.flops_per_s)),
    Column("bytes_per_s", lambda peaks: dict(peaks.bytes_per_s)),
    Column("flops_per_j", lambda peaks: dict(peaks.flops_per_j)),
    Column("bytes_per_j", lambda peaks: dict(peaks.bytes_per_j)),
    Column("base_power_w", lambda peaks: peaks.base_power_w),
    Column("notes", lambda peaks: list(peaks.notes)),
)


def _measured(model: ModelRoofline) -> Json:
    run = model.answer.measured
    if run is None:
        return None
    return {"time_s": run.time_s.mean, "energy_j": run.energy_j.mean if run.energy_j else None}


def title_of(model: ModelRoofline) -> str:
    return title(model.workload)


@dataclass(frozen=True)
class RooflineReport(Report):
    study: Study
    counters: CountersSeen | None = None

    def csv(self) -> str:
        rows = [row for model in self.study.models for row in self._placed(model)]
        return LINES.csv(rows) if rows else "\n"

    def _placed(self, model: ModelRoofline) -> list[Placed]:
        return [Placed(self.study, model, point) for point in model.points]

    def to_dict(self) -> Json:
        found = self.study
        return {
            "device": found.device,
            "board": found.board,
            "mode": found.mode,
            "peaks": {
                "measured": PEAKS.document(found.measured),
                "vendor": PEAKS.document(found.vendor),
            },
            "models": [
                {**MODELS.document(model), "operators": OPERATORS.documents(self._placed(model))}
                for model in found.models
            ],
            "notes": list(found.notes),
            "counters": self.counters and self.counters.to_dict(),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found = self.study
        yield f"{found.device} ({found.board}), {found.mode}"
        yield _peaks(found)
        base_power = show(found.measured.base_power_w, "W")
        yield f"peaks {found.measured.source}; base power {base_power}"
        yield f"data sheet: {found.vendor.source}"
        for model in found.models:
            yield ""
            yield from self._of_model(model)
        if found.notes:
            yield ""
        yield from (f"note: {each}" for each in (*found.notes, *found.vendor.notes))
        if self.counters is not None:
            yield ""
            yield from self.counters.blocks()

    def _of_model(self, model: ModelRoofline) -> Iterator[str | Rows[Any]]:
        yield from _pass(model)
        yield Rows(PARTS, model.parts())
        working = [row for row in self._placed(model) if row.point.works]
        yield Rows(OPERATORS, working[:_SHOWN])
        if len(working) > _SHOWN:
            more = plural(len(working) - _SHOWN, "more configuration")
            yield f"… and {more} (all with --json or --csv)"


def _peaks(found: Study) -> Rows[Any]:
    used = {p.unit for m in found.models for p in m.points if p.works and p.flops and p.unit}
    known = found.measured.flops_per_s
    units = sorted(used, key=lambda unit: (known.get(unit, 0.0), unit))
    rows = []
    for name, of, energy in (
        ("measured", found.measured, "  above base power"),
        ("data sheet", found.vendor, "  at its power"),
    ):
        for line, per, flops, moved in (
            (name, "s", of.flops_per_s, of.bytes_per_s),
            (energy, "J", of.flops_per_j, of.bytes_per_j),
        ):
            rates = [show(flops.get(unit), f"FLOP/{per}") for unit in units]
            rows.append([line, show(moved.get(MEMORY), f"B/{per}"), *rates])
    heads = enumerate(("peaks", "memory", *units))
    columns = (Column(title=head, text=itemgetter(place)) for place, head in heads)
    return Rows(Table(*columns), rows)


def _pass(model: ModelRoofline) -> Iterator[str]:
    prediction = model.answer.prediction
    bound = "" if prediction.complete else "at least "
    yield f"{title_of(model)}, {prediction.mode}"
    yield (
        f"a pass: {show(model.flops, 'FLOP')}, {show(model.bytes_moved, 'B')}, "
        f"{_number(model.intensity)} FLOP/byte; predicted {bound}"
        f"{show(model.time_s, 's')}, {show(model.energy_j, 'J')}: "
        f"{show(model.flops_per_s, 'FLOP/s')}, {show(model.flops_per_j, 'FLOP/J')}"
    )
    if (run := _measured(model)) is not None:
        yield f"measured on this board: {show(run['time_s'], 's')}, {show(run['energy_j'], 'J')}"
    yield (
        f"of its operators' roofs it reaches {show_share(model.reached('time'))} (time), "
        f"{show_share(model.reached('energy'))} (energy)"
    )


def roofline(
    store: Store,
    workloads: Sequence[Workload],
    mode: Mode,
    device: str | None = None,
    board: str | None = None,
    *,
    peaks: Path | None = None,
    counters: bool = False,
) -> RooflineReport | Listing:
    """Place workloads under the roofs of a device, or of a board (a prefix of its UUID).

    `peaks` is a file of peaks to use instead of the measured ones; with `counters`, operations and
    bytes are those that hardware counters measured, and where nothing else was, they stand alone.
    """
    predictor = predictor_for(store, device, estimates=False)
    uuid, seen = None if board is None else predictor.board(board), None
    if counters:
        seen = seen_by_counters(store, workloads, predictor.device.slug, uuid)
    profiles = seen.profiles if seen else None
    try:
        found = study(store, predictor, workloads, mode, uuid, peaks_file=peaks, profiles=profiles)
    except NothingMeasuredError as error:
        if seen is None:
            raise
        document = {"models": [], "notes": [str(error)], "counters": seen.to_dict()}
        return Listing(document, [*seen.blocks(), f"note: no roofline: {error}"], error)
    return RooflineReport(found, seen)
