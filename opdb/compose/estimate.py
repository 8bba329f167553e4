"""A rough size of what was never measured, for weighting alone: no prediction rests on it.

An operator is taken to be like the measured one of its kind, or else of any kind, that is nearest
to it in operations and bytes, and longer by as much as it has more of either, never shorter. So
coverage errs rather on the side of too little.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opdb.kinds import get_kind
from opdb.records import Configuration, Cost

NOMINAL_FLOPS_PER_S = 1e14
NOMINAL_BYTES_PER_S = 1e12
NOMINAL_DYNAMIC_W = 100.0
"""Where nothing is measured only ratios count: 100 operations weigh as much as one byte."""


@dataclass(frozen=True)
class _Measured:
    """What one call has to do and takes; `dynamic_w` is None where its power was not read."""

    flops: float
    bytes_moved: float
    time_s: float
    dynamic_w: float | None

    def distance(self, flops: float, bytes_moved: float) -> float:
        """Return how far apart both are in orders of magnitude."""
        return abs(math.log((1 + flops) / (1 + self.flops))) + abs(
            math.log((1 + bytes_moved) / (1 + self.bytes_moved))
        )

    def scaled_s(self, flops: float, bytes_moved: float) -> float:
        """Return the time of a call that has so much to do."""
        more = max(1.0, (1 + flops) / (1 + self.flops), (1 + bytes_moved) / (1 + self.bytes_moved))
        return more * self.time_s


@dataclass(frozen=True)
class Sizes:
    """Rough times and dynamic energies by the measured operators alike, which are kept by kind."""

    measured: Mapping[str, Sequence[_Measured]]
    dynamic_w: float

    def time_s(self, configuration: Configuration) -> float:
        """Return what one call would take."""
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
        alike = self.measured.get(configuration.kind) or [
            one for every in self.measured.values() for one in every
        ]
        if not alike:
            return max(flops / NOMINAL_FLOPS_PER_S, moved / NOMINAL_BYTES_PER_S), self.dynamic_w
        nearest = min(alike, key=lambda one: one.distance(flops, moved))
        watts = self.dynamic_w if nearest.dynamic_w is None else nearest.dynamic_w
        return nearest.scaled_s(flops, moved), watts


NOTHING_MEASURED = Sizes({}, NOMINAL_DYNAMIC_W)


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
    known = (one.dynamic_w for every in found.values() for one in every)
    watts = [each for each in known if each is not None and each > 0]
    return Sizes(found, statistics.median(watts) if watts else NOMINAL_DYNAMIC_W)
