"""Operators and models under roofs: rates against arithmetic intensity, for time and for energy.

Operations and bytes are counted (`opdb.kinds`); bytes are the minimum that must move. The roof for
time is the lower bound of a call's time: the larger of operations over peak FLOP/s and bytes over
peak byte/s. The roof for energy is the larger of the two energies, plus base power over the lower
bound of the time. A call is bound by the larger side; the share that it reaches of its roof is the
lower bound over the measured value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from opdb.predict import Answer
from opdb.records import Configuration, Workload
from opdb.studies.peaks import MEMORY, Peaks

Side = Literal["compute", "memory"]

NEAR = 0.5
"""A call that reaches a smaller share of its roof is limited by something that no roof shows."""

BEYOND_CACHES = 2**27
"""Operators that move at least this many bytes read them from memory, not from a cache."""


@dataclass(frozen=True)
class Bound:
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

    time: Bound | None = None
    energy: Bound | None = None


@dataclass(frozen=True)
class Point:
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

    @property
    def works(self) -> bool:
        """Whether the call gives the device work."""
        return self.time_s > 0

    @property
    def intensity(self) -> float | None:
        """FLOP/byte; None where no byte moves."""
        return self.flops / self.bytes_moved if self.bytes_moved else None

    @property
    def flops_per_s(self) -> float | None:
        """FLOP/s of one call."""
        return self.flops / self.time_s if self.works else None

    @property
    def bytes_per_s(self) -> float | None:
        """Byte/s of one call."""
        return self.bytes_moved / self.time_s if self.works else None

    @property
    def flops_per_j(self) -> float | None:
        """FLOP/J of one call, base power counted in."""
        return self.flops / self.energy_j if self.works and self.energy_j else None

    @property
    def flops_per_dynamic_j(self) -> float | None:
        """FLOP/J of one call above base power."""
        energy_j = self.dynamic_energy_j
        return self.flops / energy_j if self.works and energy_j and energy_j > 0 else None


@dataclass(frozen=True)
class Part:
    """The calls of a model that one side limits: number, shares of time and energy, roofs reached.

    `reached_time` and `reached_energy` are the lower bound of all these calls over their measured
    sum; `far` is the share of the model's time in calls that reach less than half of their roof.
    """

    name: str
    calls: int
    share_time: float
    share_energy: float | None
    reached_time: float | None
    reached_energy: float | None
    far: float


@dataclass(frozen=True)
class ModelRoofline:
    """A model and its operators as points, the longest first.

    `outside_s` is the time of a pass beyond its operators' times: waiting for the host,
    transitions, a clock that the power limit lowers. `unmeasured` configurations have no cost.
    """

    workload: Workload
    answer: Answer
    points: tuple[Point, ...]
    unmeasured: Mapping[Configuration, int]
    base_power_w: float | None

    @cached_property
    def flops(self) -> float:
        """The operations of a pass, as far as it was measured."""
        return sum(p.count * p.flops for p in self.points)

    @cached_property
    def bytes_moved(self) -> float:
        """The bytes of a pass, as far as it was measured."""
        return sum(p.count * p.bytes_moved for p in self.points)

    @property
    def intensity(self) -> float | None:
        """FLOP/byte of a pass; None where no byte moves."""
        return self.flops / self.bytes_moved if self.bytes_moved else None

    @property
    def time_s(self) -> float:
        """The time of a pass, as predicted from its operators."""
        assert self.answer.prediction.time_s is not None
        return self.answer.prediction.time_s

    @property
    def energy_j(self) -> float | None:
        """The energy of a pass, as predicted from its operators."""
        return self.answer.prediction.energy_j

    @property
    def flops_per_s(self) -> float | None:
        """FLOP/s of a pass."""
        return self.flops / self.time_s if self.time_s else None

    @property
    def flops_per_j(self) -> float | None:
        """FLOP/J of a pass, base power counted in."""
        return self.flops / self.energy_j if self.energy_j else None

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
        """Return an operator's share of the pass's time."""
        whole_s = self.operators_s + self.outside_s
        return point.count * point.time_s / whole_s if whole_s else 0.0

    def share_energy(self, point: Point) -> float | None:
        """Return an operator's share of the pass's energy."""
        if not self.whole_j or point.energy_j is None:
            return None
        return point.count * point.energy_j / self.whole_j

    def reached(self, what: Literal["time", "energy"]) -> float | None:
        """Return the lower bound of a pass over its cost; None where an operator has no roof."""
        working = [p for p in self.points if p.works]
        taken = self.time_s if what == "time" else self.energy_j
        least = _least(working, what)
        return least / taken if least is not None and taken else None

    def parts(self) -> list[Part]:
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
        found.append(Part("outside operators", 0, share, energy, None, None, 0.0))
        return found

    def _on(self, side: Side) -> list[Point]:
        return [p for p in self.points if p.measured.time and p.measured.time.side == side]

    def _part(self, name: str, points: Sequence[Point]) -> Part:
        shares = [self.share_energy(p) for p in points]
        taken_s = math.fsum(p.count * p.time_s for p in points)
        taken_j = math.fsum(p.count * (p.energy_j or 0.0) for p in points)
        least_s, least_j = _least(points, "time"), _least(points, "energy")
        far = [p for p in points if p.measured.time and p.measured.time.reached < NEAR]
        return Part(
            name,
            sum(p.count for p in points),
            math.fsum(self.share_time(p) for p in points),
            None if None in shares or not self.whole_j else math.fsum(s or 0.0 for s in shares),
            least_s / taken_s if least_s is not None and taken_s else None,
            least_j / taken_j if least_j is not None and taken_j else None,
            math.fsum(self.share_time(p) for p in far),
        )


def _least(points: Iterable[Point], what: Literal["time", "energy"]) -> float | None:
    """Return the lower bound of calls together; None where one of them has no roof."""
    bounds = [(p.count, p.measured.time if what == "time" else p.measured.energy) for p in points]
    if not bounds or any(bound is None for _, bound in bounds):
        return None
    return math.fsum(count * bound.least for count, bound in bounds if bound is not None)


# The arithmetic


def least_time(flops: float, moved: float, unit: str | None, peaks: Peaks) -> Bound | None:
    """Return the least time (s) of so many operations and bytes; None without the peaks it needs.

    `reached` is 1: there is no measurement yet.
    """
    return _larger(
        _over(flops, peaks.flops_per_s.get(unit or "")),
        _over(moved, peaks.bytes_per_s.get(MEMORY)),
    )


def least_energy(flops: float, moved: float, unit: str | None, peaks: Peaks) -> Bound | None:
    """Return the least energy (J) of so many operations and bytes, base power over the least time.

    None without the peaks it needs.
    """
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


def _larger(computing: float | None, moving: float | None) -> Bound | None:
    if computing is None or moving is None:
        return None
    return Bound("compute" if computing > moving else "memory", max(computing, moving), 1.0)


def _reached(least: Bound | None, taken: float | None) -> Bound | None:
    if least is None or not taken:
        return None
    return replace(least, reached=least.least / taken)


def under_roofs(point: Point, peaks: Peaks) -> Roofs:
    """Return an operator's bounds under peaks."""
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
