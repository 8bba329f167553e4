"""Rough sizes of configurations that were never measured: they weight shares, nothing else.

An operator gets the time of the measured one of its kind that is nearest to it in FLOPs and bytes,
longer in proportion to its work, never shorter. Where none of its kind was measured, it gets its
work over the best rate that any measured operator reached, and the time of a launch at least.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opdb.kinds import get_kind
from opdb.records import Configuration, Cost

OPERATIONS_A_BYTE = 100.0
"""This many FLOPs weigh as much as one byte moved."""

NOMINAL_BYTES_PER_S = 1e12
NOMINAL_DYNAMIC_W = 100.0
"""Taken where nothing is measured: only ratios count there."""

LAUNCH_S = 2e-6
"""The least time of a call, where no measured one is shorter (on an H200: 0.9 µs)."""


def _work(flops: float, bytes_moved: float) -> float:
    """Return a call's work in bytes: its bytes moved, or its FLOPs where these weigh more."""
    return max(flops / OPERATIONS_A_BYTE, bytes_moved)


@dataclass(frozen=True)
class _Measured:
    """Work and time of one measured call; `dynamic_w` is None where its power was not read."""

    flops: float
    bytes_moved: float
    time_s: float
    dynamic_w: float | None

    def distance(self, flops: float, bytes_moved: float) -> float:
        """Return how far apart both are in orders of magnitude."""
        return abs(math.log((1 + flops) / (1 + self.flops))) + abs(
            math.log((1 + bytes_moved) / (1 + self.bytes_moved))
        )

    @property
    def bytes_per_s(self) -> float:
        """The rate at which it worked."""
        return _work(self.flops, self.bytes_moved) / self.time_s


@dataclass(frozen=True)
class Sizes:
    """Rough times and dynamic energies by the measured operators alike, which are kept by kind.

    `bytes_per_s` is the best rate that any reached, `launch_s` the least time of a call.
    """

    measured: Mapping[str, Sequence[_Measured]]
    dynamic_w: float
    bytes_per_s: float
    launch_s: float

    def time_s(self, configuration: Configuration) -> float:
        """Return the rough time of one call."""
        return self._sized(configuration)[0]

    def dynamic_j(self, configuration: Configuration, time_s: float | None = None) -> float:
        """Return one call's energy above base power, its time being sized too where not given."""
        sized_s, watts = self._sized(configuration)
        return watts * (sized_s if time_s is None else time_s)

    def _sized(self, configuration: Configuration) -> tuple[float, float]:
        """Return a time, and the power above base power."""
        kind = get_kind(configuration.kind)
        if not kind.launches(configuration):
            return 0.0, 0.0
        flops, moved = kind.flops(configuration), kind.bytes_moved(configuration)
        at_best_s = self._at_best_s(flops, moved)
        alike = self.measured.get(configuration.kind)
        if not alike:
            return at_best_s, self.dynamic_w
        nearest = min(alike, key=lambda one: one.distance(flops, moved))
        more = at_best_s / self._at_best_s(nearest.flops, nearest.bytes_moved)
        watts = self.dynamic_w if nearest.dynamic_w is None else nearest.dynamic_w
        return max(1.0, more) * nearest.time_s, watts

    def _at_best_s(self, flops: float, bytes_moved: float) -> float:
        return max(self.launch_s, _work(flops, bytes_moved) / self.bytes_per_s)


NOTHING_MEASURED = Sizes({}, NOMINAL_DYNAMIC_W, NOMINAL_BYTES_PER_S, LAUNCH_S)


def sizes_by(configurations: Iterable[Configuration], costs: Mapping[str, Cost]) -> Sizes:
    """Return sizes by the measured ones among these configurations; `costs` by key."""
    found: dict[str, list[_Measured]] = defaultdict(list)
    for configuration in configurations:
        cost = costs.get(configuration.key)
        if cost is None or cost.time_s is None or cost.time_s.mean <= 0:
            continue
        kind, time_s, dynamic = get_kind(configuration.kind), cost.time_s.mean, None
        if cost.dynamic_energy_j is not None:
            dynamic = cost.dynamic_energy_j.mean / time_s
        found[configuration.kind].append(
            _Measured(kind.flops(configuration), kind.bytes_moved(configuration), time_s, dynamic)
        )
    every = [one for of_kind in found.values() for one in of_kind]
    watts = [one.dynamic_w for one in every if one.dynamic_w is not None and one.dynamic_w > 0]
    return Sizes(
        found,
        statistics.median(watts) if watts else NOMINAL_DYNAMIC_W,
        max((one.bytes_per_s for one in every), default=0.0) or NOMINAL_BYTES_PER_S,
        min((LAUNCH_S, *(one.time_s for one in every))),
    )
