"""Operators and models under the peaks of a device: rates against intensity, time and energy."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from opdb.derive.boards import usual_calibration
from opdb.errors import InputError, NothingMeasuredError, shown
from opdb.files import parse_json, read_text
from opdb.kinds import KINDS
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.kinds.view import category
from opdb.memory import bytes_moved, resident_bytes
from opdb.predict.compose import inputs_in_pass
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor, check_mode
from opdb.predict.timeline import Pass, PredictionInputs
from opdb.records import BoardCalibration, Configuration, Cost, Json, Mode, Profile, Workload
from opdb.store import Store
from opdb.studies.roofline.counters import MEMORY, UNITS, counters_of
from opdb.units import plural

_PRODUCT_SETTINGS = {"tf32_convolution", "tf32_matmul"}
_PLAIN = {
    **dict.fromkeys(("float16", "bfloat16", "float32", "complex64", "complex32"), "float32"),
    **dict.fromkeys(("float64", "complex128"), "float64_vector"),
}


@dataclass(frozen=True)
class Peaks:
    """Rates by unit and by memory level; an unknown rate is left out, and `notes` say why.

    `flops_per_j` and `bytes_per_j` count the energy above `base_power_w`, which a board always
    draws; with a base power of 0, all energy. Without base power there is no roof for energy.
    """

    source: str
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    flops_per_j: Mapping[str, float] = field(default_factory=dict)
    bytes_per_j: Mapping[str, float] = field(default_factory=dict)
    base_power_w: float | None = None
    notes: tuple[str, ...] = ()


def unit_of(configuration: Configuration, settings: Mapping[str, Json]) -> str | None:
    """Return the unit that an operator computes on; None for whole numbers and unknown kinds.

    Products go by the dtype of their factors, and in float32 by whether the backend may use TF32;
    what is no product computes in float32 or float64. A dtype that is none of `UNITS`, such as
    float8, is a unit of its own, of which no peak is known.
    """
    kind = KINDS.get(configuration.kind)
    if kind is None:
        return None
    dtype = kind.arithmetic_rule(kind.view(configuration))
    switches = _PRODUCT_SETTINGS & set(kind.settings)
    if not switches:
        return _PLAIN.get(dtype)
    if configuration.autocast is not None and dtype == "float32":
        dtype = configuration.autocast
    if dtype != "float32":
        return dtype if category(dtype) > 1 else None
    # cuDNN runs recurrent layers, which both settings touch
    first = "tf32_convolution" if "tf32_convolution" in switches else "tf32_matmul"
    return "tf32" if settings.get(first) else "float32"


# Measured


def measured_peaks(
    calibrations: Sequence[BoardCalibration],
    board: str,
    power_limit_w: float | None,
    base_power_w: float | None,
) -> Peaks:
    """Return the rates that a board (UUID) reached, as last calibrated under its power limit.

    `calibrations` are those of all boards of the device, oldest first: where the board itself has
    none, another's stand in, and a note says so.
    """
    fitting = [c for c in calibrations if c.power_limit_w == power_limit_w]
    own = [c for c in fitting if c.board.uuid == board]
    if not fitting:
        note = (
            "no board of this device has measured peaks; opdb doctor --calibrate measures them "
            "there"
        )
        return Peaks("measured", base_power_w=base_power_w, notes=(note,))
    chosen = (own or fitting)[-1]
    borrowed = f"the peaks are those of board {chosen.board.uuid}: this one has none"
    flops = {unit: chosen.facts.get(f"matmul_{unit}_flops_per_s") for unit in UNITS}
    copied = chosen.facts.get("copy_bytes_per_s")
    return Peaks(
        f"measured on {chosen.board.uuid}, {chosen.measured_at[:10]}",
        {unit: rate for unit, rate in flops.items() if rate},
        {MEMORY: copied} if copied else {},
        base_power_w=base_power_w,
        notes=() if own else (borrowed,),
    )


# The vendor's


@dataclass(frozen=True)
class DataSheet:
    """What a vendor states of a device: dense FLOP/s by unit, memory's rate, power."""

    flops_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    power_w: float
    source: str


_HOPPER = {
    "float64_vector": 34e12,
    "float64": 67e12,
    "float32": 67e12,
    "tf32": 494.5e12,
    "float16": 989.5e12,
    "bfloat16": 989.5e12,
}
_AMPERE = {
    "float64_vector": 9.7e12,
    "float64": 19.5e12,
    "float32": 19.5e12,
    "tf32": 156e12,
    "float16": 312e12,
    "bfloat16": 312e12,
}
_HALVED = "rates of tensor cores are stated with sparsity there and halved here"

DATA_SHEETS: Mapping[str, DataSheet] = {
    "NVIDIA H200": DataSheet(
        _HOPPER, 4.8e12, 700, f"NVIDIA H200 Tensor Core GPU data sheet, H200 SXM; {_HALVED}"
    ),
    "NVIDIA H100 80GB HBM3": DataSheet(
        _HOPPER, 3.35e12, 700, f"NVIDIA H100 Tensor Core GPU data sheet, H100 SXM; {_HALVED}"
    ),
    "NVIDIA A100-SXM4-80GB": DataSheet(
        _AMPERE, 2.039e12, 400, "NVIDIA A100 Tensor Core GPU data sheet, A100 80GB SXM"
    ),
    "NVIDIA A100-SXM4-40GB": DataSheet(
        _AMPERE, 1.555e12, 400, "NVIDIA A100 Tensor Core GPU data sheet, A100 40GB SXM"
    ),
}
"""Reviewed by hand, by the name that the driver gives the device."""


def vendor_peaks(device: str) -> Peaks:
    """A data sheet states no energy of an operation: the roof for it is the rate at its power."""
    sheet = DATA_SHEETS.get(device)
    if sheet is None:
        return Peaks("data sheet", notes=(f"opdb has no data sheet of {device}",))
    return Peaks(
        sheet.source,
        sheet.flops_per_s,
        {MEMORY: sheet.memory_bytes_per_s},
        {unit: rate / sheet.power_w for unit, rate in sheet.flops_per_s.items()},
        {MEMORY: sheet.memory_bytes_per_s / sheet.power_w},
        base_power_w=0.0,
    )


# A user's

_NAMES: Mapping[str, tuple[str, ...]] = {
    "flops_per_s": UNITS,
    "bytes_per_s": (MEMORY,),
    "flops_per_j": UNITS,
    "bytes_per_j": (MEMORY,),
}
_KEYS = ("source", "base_power_w", *_NAMES)


def read_peaks(path: Path, base_power_w: float | None) -> Peaks:
    """Read a user's peaks (JSON); each rate is a mapping of units, or of memory, to numbers.

    `base_power_w` is taken where the file says none. All that is wrong is said at once.
    """
    from opdb.summary_files import unknown_key

    document = parse_json(path, read_text(path, "a peaks file"))
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {shown(document)}; expected a mapping: {', '.join(_KEYS)}")
    problems = [unknown_key(key, _KEYS) for key in document if key not in _KEYS]
    rates: dict[str, Any] = {key: document.get(key, {}) for key in _NAMES}
    base_w = document.get("base_power_w", base_power_w)
    numbers = {} if base_w is None else {"base_power_w": base_w}
    for key, valid in _NAMES.items():
        if not isinstance(rates[key], dict):
            problems.append(f"{key}: found {shown(rates[key])}; allowed: {', '.join(valid)}")
            continue
        problems += [
            unknown_key(name, valid, f"{key}.") for name in rates[key] if name not in valid
        ]
        numbers |= {f"{key}.{name}": rate for name, rate in rates[key].items()}
    problems += [
        f"{name}: found {shown(value)}; allowed: a number "
        + ("of 0 or more" if name == "base_power_w" else "above 0, such as 4.3e12")
        for name, value in numbers.items()
        if not _is_number(value) or (not value and name != "base_power_w")
    ]
    source = document.get("source", str(path))
    if not isinstance(source, str):
        problems.append(f"source: found {shown(source)}; allowed: text")
    if not problems and not (rates["flops_per_s"] or rates["bytes_per_s"]):
        problems.append("it gives no rate; give flops_per_s and bytes_per_s")
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    return Peaks(source, **rates, base_power_w=base_w)


def _is_number(value: object) -> bool:
    # the upper bound also refuses what JSON spells Infinity and NaN
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e30


# Operators under roofs

Side = Literal["compute", "memory"]

NEAR = 0.5
"""A call that reaches a smaller share of a rate does not say what a unit of work takes."""

BEYOND_CACHES = 2**27
"""Operators that move at least this many bytes read them from memory, not from a cache."""


@dataclass(frozen=True)
class RoofBound:
    """The side that limits a call, the lower bound that it sets, and the share of it reached.

    `least` is in seconds or joules; `reached` is `least` over the measured value, above 1 where a
    call is better than the peak.
    """

    side: Side
    least: float
    reached: float


@dataclass(frozen=True)
class Roofs:
    """A call's bounds under one set of peaks; None where a peak that they need is not known."""

    time: RoofBound | None = None
    energy: RoofBound | None = None


class Work:
    flops: float
    bytes_moved: float
    time_s: float
    energy_j: float | None

    @property
    def works(self) -> bool:
        return self.time_s > 0

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes_moved if self.bytes_moved else None

    @property
    def flops_per_s(self) -> float | None:
        return self.flops / self.time_s if self.works else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes_moved / self.time_s if self.works else None

    @property
    def flops_per_j(self) -> float | None:
        """FLOP/J, base power counted in."""
        return self.flops / self.energy_j if self.works and self.energy_j else None


@dataclass(frozen=True)
class Point(Work):
    """One operator of a model: operations and bytes of one call, its cost, and its bounds.

    `count` is how often the model makes the call. `energy_j` holds base power over the call's time
    and `dynamic_energy_j`; both are None where the board has no power readings. A call that
    gives the device no work has a time of 0 and no bounds. `metered` says that hardware counters
    measured `flops` and `bytes_moved`; otherwise they are counted.
    """

    configuration: Configuration
    count: int
    unit: str | None
    flops: float
    bytes_moved: float
    time_s: float
    energy_j: float | None
    dynamic_energy_j: float | None
    measured: Roofs = Roofs()
    vendor: Roofs = Roofs()
    metered: bool = False


@dataclass(frozen=True)
class SideShare:
    """`reached_time` and `reached_energy` are the calls' lower bounds over their measured sums."""

    name: str
    calls: int
    share_time: float
    share_energy: float | None
    reached_time: float | None
    reached_energy: float | None


@dataclass(frozen=True)
class ModelRoofline(Work):
    """A model and its operators as points, the longest first.

    `outside_s` is the time of a pass beyond its operators' times: waiting for the host,
    transitions, a clock that the power limit lowers. `unmeasured` configurations have no cost.
    """

    workload: Workload
    answer: Answer
    points: tuple[Point, ...]
    unmeasured: Mapping[Configuration, int]
    base_power_w: float | None
    flops: float
    bytes_moved: float
    time_s: float
    energy_j: float | None

    @cached_property
    def operators_s(self) -> float:
        """The device's time of all operators, at full clock."""
        return math.fsum(p.count * p.time_s for p in self.points)

    @property
    def outside_s(self) -> float:
        """The time of a pass beyond that of its operators."""
        return max(0.0, self.time_s - self.operators_s)

    @cached_property
    def operators_j(self) -> float | None:
        """The energy of all operators, at full clock; None where one has none."""
        energies = [p.energy_j for p in self.points if p.works]
        if not energies or any(e is None for e in energies):
            return None
        return math.fsum(p.count * (p.energy_j or 0.0) for p in self.points)

    @property
    def whole_j(self) -> float | None:
        """The energy that shares refer to: the operators', and base power outside them."""
        if self.operators_j is None or self.base_power_w is None:
            return None
        return self.operators_j + self.base_power_w * self.outside_s

    def share_time(self, point: Point) -> float:
        whole_s = self.operators_s + self.outside_s
        return point.count * point.time_s / whole_s if whole_s else 0.0

    def share_energy(self, point: Point) -> float | None:
        if not self.whole_j or point.energy_j is None:
            return None
        return point.count * point.energy_j / self.whole_j

    def reached(self, what: Literal["time", "energy"]) -> float | None:
        """Return the lower bound of a pass over its cost; None where an operator has no roof."""
        working = [p for p in self.points if p.works]
        taken = self.time_s if what == "time" else self.energy_j
        least = _least(working, what)
        return least / taken if least is not None and taken else None

    def parts(self) -> list[SideShare]:
        """Return the calls by what limits them: compute, memory, no known peak, no operator."""
        found = [
            self._part("compute", self._on("compute")),
            self._part("memory", self._on("memory")),
        ]
        if unknown := [p for p in self.points if p.works and p.measured.time is None]:
            found.append(self._part("peak not known", unknown))
        whole_s = self.operators_s + self.outside_s
        energy = None
        if self.whole_j and self.base_power_w is not None:
            energy = self.base_power_w * self.outside_s / self.whole_j
        share = self.outside_s / whole_s if whole_s else 0.0
        found.append(SideShare("outside operators", 0, share, energy, None, None))
        return found

    def _on(self, side: Side) -> list[Point]:
        return [p for p in self.points if p.measured.time and p.measured.time.side == side]

    def _part(self, name: str, points: Sequence[Point]) -> SideShare:
        shares = [self.share_energy(p) for p in points]
        taken_s = math.fsum(p.count * p.time_s for p in points)
        taken_j = math.fsum(p.count * (p.energy_j or 0.0) for p in points)
        least_s, least_j = _least(points, "time"), _least(points, "energy")
        return SideShare(
            name,
            sum(p.count for p in points),
            math.fsum(self.share_time(p) for p in points),
            None if None in shares or not self.whole_j else math.fsum(s or 0.0 for s in shares),
            least_s / taken_s if least_s is not None and taken_s else None,
            least_j / taken_j if least_j is not None and taken_j else None,
        )


def _least(points: Iterable[Point], what: Literal["time", "energy"]) -> float | None:
    bounds = [(p.count, p.measured.time if what == "time" else p.measured.energy) for p in points]
    if not bounds or any(bound is None for _, bound in bounds):
        return None
    return math.fsum(count * bound.least for count, bound in bounds if bound is not None)


# The arithmetic


def least_time(flops: float, moved: float, unit: str | None, peaks: Peaks) -> RoofBound | None:
    """Return the least time (s) of operations and bytes; None without its peaks."""
    return _larger(
        _over(flops, peaks.flops_per_s.get(unit or "")),
        _over(moved, peaks.bytes_per_s.get(MEMORY)),
    )


def least_energy(flops: float, moved: float, unit: str | None, peaks: Peaks) -> RoofBound | None:
    """Return the least energy (J), base power over the least time; None without its peaks."""
    time = least_time(flops, moved, unit, peaks)
    dynamic = _larger(
        _over(flops, peaks.flops_per_j.get(unit or "")),
        _over(moved, peaks.bytes_per_j.get(MEMORY)),
    )
    if time is None or dynamic is None or peaks.base_power_w is None:
        return None
    return replace(dynamic, least=dynamic.least + peaks.base_power_w * time.least)


def _over(amount: float, rate: float | None) -> float | None:
    if amount == 0:
        return 0.0
    return amount / rate if rate else None


def _larger(computing: float | None, moving: float | None) -> RoofBound | None:
    if computing is None or moving is None:
        return None
    return RoofBound("compute" if computing > moving else "memory", max(computing, moving), 1.0)


def _reached(least: RoofBound | None, taken: float | None) -> RoofBound | None:
    if least is None or not taken:
        return None
    return replace(least, reached=least.least / taken)


def under_roofs(point: Point, peaks: Peaks) -> Roofs:
    if not point.works:
        return Roofs()
    what = point.flops, point.bytes_moved, point.unit, peaks
    return Roofs(
        _reached(least_time(*what), point.time_s), _reached(least_energy(*what), point.energy_j)
    )


def with_energy(peaks: Peaks, points: Iterable[Point]) -> Peaks:
    """Return measured peaks with the least dynamic energy that operators spent on work.

    Only operators that reach half of a peak's rate count, for memory those that move more than
    caches hold. Operators on inputs with a share of zeros are left out: they draw less power.
    """
    flops: dict[str, float] = {}
    moved: dict[str, float] = {}
    memory = peaks.bytes_per_s.get(MEMORY)
    for point in points:
        dynamic_j = point.dynamic_energy_j
        if not point.works or dynamic_j is None or dynamic_j <= 0 or _has_zeros(point):
            continue
        rate = peaks.flops_per_s.get(point.unit or "")
        if rate and point.unit and point.flops / point.time_s >= NEAR * rate:
            flops[point.unit] = max(flops.get(point.unit, 0.0), point.flops / dynamic_j)
        is_far = point.bytes_moved >= BEYOND_CACHES
        if memory and is_far and point.bytes_moved / point.time_s >= NEAR * memory:
            moved[MEMORY] = max(moved.get(MEMORY, 0.0), point.bytes_moved / dynamic_j)
    return replace(peaks, flops_per_j=flops, bytes_per_j=moved)


def _has_zeros(point: Point) -> bool:
    return '"zeros":' in point.configuration.json


ABOVE = 1.05
"""A note says so where a call exceeds its roof by more than this."""


@dataclass(frozen=True)
class Study:
    device: str
    board: str
    mode: Mode
    measured: Peaks
    vendor: Peaks
    models: tuple[ModelRoofline, ...]
    notes: tuple[str, ...] = ()


def study(
    store: Store,
    predictor: Predictor,
    workloads: Sequence[Workload],
    mode: Mode,
    board: str | None = None,
    *,
    peaks_file: Path | None = None,
    profiles: Mapping[str, Profile] | None = None,
) -> Study:
    """Place workloads under the roofs of one board (UUID): the one named, else the first answer's.

    Peaks of a user's file take the place of the measured ones. With `profiles` (by configuration
    key) operations and bytes are those that hardware counters saw, counted where there is none.
    Backend settings are torch's own.
    """
    check_mode(mode, PLAIN_MODES)
    answers = []
    for workload in workloads:
        answers.append(predictor.answer(workload, mode, board))
        board = answers[-1].prediction.board
        if answers[-1].prediction.time_s is None:
            raise NothingMeasuredError(
                f"nothing of {workload.name} (batch {workload.batch_size} {workload.dtype}) was "
                f"measured on {predictor.device.slug}; run opdb bench there"
            )
    assert board is not None
    reader = _PointReader(store, predictor, board, mode, profiles or {})
    if peaks_file is not None:
        peaks = read_peaks(peaks_file, reader.base_power_w)
    else:
        known = {w.key: w for on in PLAIN_MODES for w, _ in predictor.measured_workloads(on)}
        known |= {answer.prediction.workload.key: answer.prediction.workload for answer in answers}
        peaks = with_energy(reader.peaks(), reader.points_of(known.values()))
    vendor = vendor_peaks(predictor.device.name)
    models = tuple(reader.model(answer, peaks, vendor) for answer in answers)
    notes = _notes(models, peaks)
    if profiles is not None:
        notes = (_metered_note(models), *notes)
    return Study(predictor.device.slug, board, mode, peaks, vendor, models, notes)


class _PointReader:
    def __init__(
        self,
        store: Store,
        predictor: Predictor,
        board: str,
        mode: Mode,
        profiles: Mapping[str, Profile],
    ) -> None:
        self._store, self._predictor, self._board, self._mode = store, predictor, board, mode
        self._profiles = profiles
        self._calibration = usual_calibration(store.campaigns(board=board))

    @property
    def base_power_w(self) -> float | None:
        return self._calibration.base_power_w

    def peaks(self) -> Peaks:
        """Return the peaks measured on the board, else on another of its device."""
        device = self._predictor.device
        boards = {b.uuid for b in self._store.boards(device.slug)}
        found = [c for c in self._store.board_calibrations() if c.board.uuid in boards]
        return measured_peaks(found, self._board, device.power_limit_w, self.base_power_w)

    def points_of(self, workloads: Iterable[Workload]) -> list[Point]:
        """Return each configuration that workloads call as a point, weights cold."""
        configurations = {c.key: c for w in workloads for c in w.occurrences()}
        costs = self._predictor.costs_on(self._board, list(configurations.values()))
        return [
            p for key, cost in costs.items() if (p := self._point(configurations[key], 1, cost))
        ]

    def model(self, answer: Answer, peaks: Peaks, vendor: Peaks) -> ModelRoofline:
        """Return a workload as points, its weights in the state that a pass finds them in."""
        workload = answer.prediction.workload
        counts = workload.occurrences()
        costs = self._costs_in(workload, counts)
        points, unmeasured = [], {}
        for configuration, count in counts.items():
            cost = costs.get(configuration.key)
            point = None if cost is None else self._point(configuration, count, cost)
            if point is None:
                unmeasured[configuration] = count
            else:
                under = under_roofs(point, peaks)
                points.append(replace(point, measured=under, vendor=under_roofs(point, vendor)))
        points.sort(key=lambda p: (p.count * p.time_s, p.bytes_moved), reverse=True)
        assert answer.prediction.time_s is not None
        return ModelRoofline(
            workload,
            answer,
            tuple(points),
            unmeasured,
            self.base_power_w,
            sum(p.count * p.flops for p in points),
            sum(p.count * p.bytes_moved for p in points),
            answer.prediction.time_s,
            answer.prediction.energy_j,
        )

    def _costs_in(
        self, workload: Workload, configurations: Collection[Configuration]
    ) -> Mapping[str, Cost]:
        device = self._predictor.device
        inputs = PredictionInputs(
            device,
            self._board,
            self._calibration,
            self._predictor.costs_on(self._board, configurations),
            resident_bytes=resident_bytes(device),
        )
        return inputs_in_pass(Pass(workload), inputs).costs

    def _point(self, configuration: Configuration, count: int, cost: Cost) -> Point | None:
        kind = KINDS.get(configuration.kind)
        if kind is None or cost.time_s is None:
            return None
        eager = cost.eager_time_s if self._mode == "eager" else None
        # subtracting what restores an input of a short call can leave less than nothing of it
        time_s = eager.mean if eager is not None and eager.mean > 0 else cost.time_s.mean
        dynamic_j = cost.dynamic_energy_j.mean if cost.dynamic_energy_j else None
        base_w = self.base_power_w
        known = dynamic_j is not None and base_w is not None
        point = Point(
            configuration,
            count,
            unit_of(configuration, DEFAULT_SETTINGS),
            kind.flops(configuration),
            bytes_moved(configuration),
            time_s,
            (dynamic_j or 0.0) + (base_w or 0.0) * time_s if known else None,
            dynamic_j,
        )
        return _as_metered(point, self._profiles.get(configuration.key))


def _as_metered(point: Point, profile: Profile | None) -> Point:
    """Return a point with the operations and bytes that counters saw, where they saw both.

    Of several units it is the one that did most; the operations are all of them. A unit that has no
    counter, such as float8's, keeps what is counted.
    """
    if profile is None:
        return point
    seen = counters_of(profile)
    flops, moved = seen.all_flops, seen.bytes[MEMORY]
    uncounted = point.unit is not None and point.unit not in seen.flops
    if flops is None or moved is None or uncounted:
        return point
    unit = seen.unit or point.unit
    return replace(point, unit=unit, flops=flops, bytes_moved=moved, metered=True)


def _metered_note(models: Sequence[ModelRoofline]) -> str:
    working = {p.configuration.key: p.metered for m in models for p in m.points if p.works}
    return (
        f"operations and bytes of {sum(working.values())} of "
        f"{plural(len(working), 'configuration')} are those that hardware counters saw; the "
        "others' are counted"
    )


def _notes(models: Sequence[ModelRoofline], peaks: Peaks) -> tuple[str, ...]:
    found = list(peaks.notes)
    working = [p for m in models for p in m.points if p.works]
    computing = {p.unit or "whole numbers" for p in working if p.flops}
    for unit in sorted(computing - peaks.flops_per_s.keys()):
        found.append(f"no peak is known for {unit}: what computes in it has no roof")
    above = [p for p in working if p.measured.time and p.measured.time.reached > ABOVE]
    if above:
        found.append(
            f"more than the roof is reached by {plural(len(above), 'configuration')}: data come "
            "from a cache, or kernels move or compute less than is counted"
        )
    for model in models:
        limited = [n for n in model.answer.prediction.notes if n.startswith("the power limit")]
        found += [f"{model.workload.name}: {note}" for note in limited]
        if model.unmeasured:
            calls = sum(model.unmeasured.values())
            found.append(
                f"not measured and left out: {plural(calls, 'call')} of {model.workload.name}; "
                "opdb bench measures what is lacking"
            )
        if model.workload.unsupported:
            calls = sum(model.workload.unsupported.values())
            found.append(f"of no known operator: {plural(calls, 'call')} of {model.workload.name}")
    return tuple(dict.fromkeys(found))
