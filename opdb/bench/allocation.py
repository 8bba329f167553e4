"""Further visits where they narrow the sums of models most.

A model's sum is Σ n·c over its configurations: n calls of one, each of cost c, the mean of v visits
that scatter by σ. Visits add Σ n²σ²/v to the sum's variance. Least device time for a given variance
has v ∝ n·σ/√(time of a visit) (Neyman 1934; with costs: Cochran, Sampling Techniques, 1977, 5.5).
Visits are whole and few, so they are given one by one, each to the configuration in which it takes
most variance off for its device time; that comes to the same.

What all visits share (a board's gain, base power, transitions, the model error) no visit makes
smaller, and none is spent on it. Pure: costs go in, configurations come out.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from opdb.derive.statistics import PRIOR_DEGREES, visit_deviation
from opdb.records import Cost, Quantity
from opdb.store import Repeated

SUM_PRECISION = 0.01
"""Half width of the 95 % interval of a model's sum that visits are made for where none is asked,
as a share of it: its sampling part alone."""

Z95 = 1.96

TOP_SHARE = 0.05
"""A configuration that makes up more of a model's sum is visited twice at least."""

MANY = 3
"""So many configurations of a kind, visited twice, tell how visits of that kind scatter."""


@dataclass(frozen=True)
class Sampled:
    """How one quantity of a configuration was sampled: its mean, a visit's deviation, the visits.

    `value` and `deviation` are of one call, in seconds or joules. `deviation` is None where one
    visit is all there is.
    """

    kind: str
    value: float
    deviation: float | None
    visits: int

    @classmethod
    def of(cls, kind: str, quantity: Quantity, visits: int) -> Sampled:
        """Return what a derived quantity says of the visits behind it."""
        return cls(kind, quantity.mean, visit_deviation(quantity.half_width, visits), visits)


@dataclass(frozen=True)
class Sum:
    """One sum, of times or of energies, over a model's configurations: calls of each, by key.

    A configuration that takes the device no time (a view, an index) is in no sum. `whole` is what
    the model is likely to take where these are not all that it calls, in seconds or joules.
    """

    counts: Mapping[str, int]
    sampled: Mapping[str, Sampled]
    whole: float = 0.0

    @property
    def value(self) -> float:
        """The sum, in seconds or joules; what the model takes in all where that is more."""
        seen = math.fsum(n * self.sampled[key].value for key, n in self.counts.items())
        return max(seen, self.whole)

    def variance(self, key: str, visits: int) -> float:
        """Return what one configuration's visits add to the variance of the sum."""
        deviation = self.sampled[key].deviation or 0.0
        return (self.counts[key] * deviation) ** 2 / visits

    @property
    def half_width(self) -> float:
        """The sampling part of its 95 % interval, as a share of it."""
        return Z95 * math.sqrt(self._variance()) / self.value if self.value > 0 else 0.0

    def _variance(self) -> float:
        return math.fsum(self.variance(key, self.sampled[key].visits) for key in self.counts)

    def further(
        self, precision: float, visits: Mapping[str, int], seconds: Mapping[str, float], most: int
    ) -> dict[str, int]:
        """Return how many visits of each configuration there are to be.

        `visits` are those that other sums want already, `seconds` what one more of each takes. What
        has no `seconds` is not visited here, and what it adds to the variance stays as it is.
        """
        value = self.value
        found = {}
        for key in self.counts.keys() & seconds.keys():
            one = self.sampled[key]
            top = self.counts[key] * one.value > TOP_SHARE * value or one.deviation is None
            found[key] = max(one.visits, visits.get(key, 0), 2 if top else 1)
        allowed = (precision * value / Z95) ** 2
        variance = math.fsum(self.variance(key, v) for key, v in found.items())

        def place(key: str) -> tuple[float, str]:
            saved = self.variance(key, found[key]) - self.variance(key, found[key] + 1)
            return -saved / seconds[key], key

        queue = [place(key) for key, v in found.items() if v < most and self.variance(key, v)]
        heapq.heapify(queue)
        while variance > allowed and queue:
            _, key = heapq.heappop(queue)
            variance += self.variance(key, found[key] + 1) - self.variance(key, found[key])
            found[key] += 1
            if found[key] < most:
                heapq.heappush(queue, place(key))
        return found


def sums_of(
    calls: Mapping[str, Mapping[str, int]],
    costs: Mapping[str, Cost],
    kinds: Mapping[str, str],
    wholes: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    repeated: Iterable[Repeated] = (),
) -> list[Sum]:
    """Return the sums of times and of energies of workloads.

    `calls` are the calls of each configuration (key) by workload, `costs` and `kinds` by
    configuration, `wholes` what a workload is likely to take in all (seconds, joules). A
    configuration without a cost, or that takes the device no time, has no part in a sum. Where
    these costs do not tell how visits of a kind scatter, those of `repeated`, of other boards too,
    do.
    """
    costs = {key: cost for key, cost in costs.items() if takes_time(cost)}
    times = {k: Sampled.of(kinds[k], c.time_s, c.visits) for k, c in costs.items() if c.time_s}
    energies = {
        k: Sampled.of(kinds[k], c.energy_j, c.visits) for k, c in costs.items() if c.energy_j
    }
    elsewhere = list(repeated)
    both = (
        _shrunk(times, [Sampled.of(r.kind, r.time_s, r.visits) for r in elsewhere if r.time_s]),
        _shrunk(
            energies, [Sampled.of(r.kind, r.energy_j, r.visits) for r in elsewhere if r.energy_j]
        ),
    )
    sums = []
    for quantity, sampled in enumerate(both):
        for workload, counts in calls.items():
            known = {key: n for key, n in counts.items() if key in sampled}
            if known:
                whole = wholes[workload][quantity] if workload in wholes else 0.0
                sums.append(Sum(known, sampled, whole))
    return sums


def takes_time(cost: Cost) -> bool:
    """Return whether a call takes the device any time, as far as that was measured."""
    return cost.time_s is not None and cost.time_s.mean > 0


def _shrunk(sampled: Mapping[str, Sampled], elsewhere: Iterable[Sampled]) -> dict[str, Sampled]:
    """Return deviations of few visits shrunk towards those usual for their kind."""
    usual = _usual(elsewhere) | _usual(sampled.values())
    return {
        key: one if one.kind not in usual else replace(one, deviation=_joined(one, usual[one.kind]))
        for key, one in sampled.items()
    }


def _usual(sampled: Iterable[Sampled]) -> dict[str, float]:
    """Return the relative deviation usual for each kind of which several were visited twice."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in sampled:
        if one.visits > 1 and one.deviation is not None and one.value > 0:
            found[one.kind].append(one.deviation / one.value)
    return {
        kind: math.sqrt(statistics.fmean(r * r for r in relative))
        for kind, relative in found.items()
        if len(relative) >= MANY
    }


def _joined(one: Sampled, usual: float) -> float:
    own = 0.0 if one.deviation is None else one.deviation
    degrees = one.visits - 1
    shared = PRIOR_DEGREES * (usual * one.value) ** 2
    return math.sqrt((degrees * own**2 + shared) / (degrees + PRIOR_DEGREES))


def wanted(
    sums: Sequence[Sum], precision: float, seconds: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return how many visits of each configuration the sums want, at most so many, by key.

    Of each sum, the sampling part of what is visited here is to be within `precision`, a share of
    the sum. `seconds` is the device time of one visit of each configuration that is.
    """
    visits: dict[str, int] = {}
    for each in sorted(sums, key=lambda sum_: sum_.half_width, reverse=True):
        visits |= each.further(precision, visits, seconds, most)
    return visits
