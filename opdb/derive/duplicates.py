"""Blind duplicates: configurations measured twice over, to see whether stated intervals hold."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opdb.derive.costs import Deriver
from opdb.derive.review import reviewed
from opdb.records import Campaign, Cost, Outputs, Quantity, Visit, Weights

VISITS = 2
"""Visits that each side of a pair rests on: rounds beyond these are the measurement's alone."""


@dataclass(frozen=True)
class Difference:
    """The difference between two independent estimates of one quantity.

    `relative` is (second - first) / their mean; `inside` says whether the difference lies within
    the combined 95 % interval, the root of the sum of the squared half widths.
    """

    relative: float
    inside: bool


@dataclass(frozen=True)
class Pair:
    """One configuration's cost from its measurement, and from its duplicate."""

    configuration: str
    setting: str
    board: str
    measured: Cost
    duplicate: Cost
    time: Difference | None
    energy: Difference | None


@dataclass(frozen=True)
class Agreement:
    """In how many pairs a quantity's estimates agree within their combined 95 % interval."""

    pairs: int
    inside: int
    median_difference: float

    @property
    def share_inside(self) -> float:
        """The share of the pairs that agree: 0.95 where intervals are what they say."""
        return self.inside / self.pairs


def pairs(campaigns: Sequence[Campaign], visits: Sequence[Visit]) -> list[Pair]:
    """Derive each duplicated configuration's cost twice, of a board's visits.

    The two share no visit and no pooled spread: each side pools its own.
    """
    found = [v for v in reviewed(campaigns, visits) if v.access == "model"]
    twins = [v for v in found if v.role == "duplicate"]
    # Of weights hot and cold the duplicate saw one, and its outputs went to memory of one sort:
    # the measurement in that state is its pair.
    states = {(v.configuration, v.setting): _state(v) for v in twins}
    measured = [
        v
        for v in found
        if v.role == "measurement"
        and states.get((v.configuration, v.setting), _state(v)) == _state(v)
    ]
    first = {(cost.configuration, cost.setting): cost for cost in _costs(campaigns, measured)}
    return [
        _pair(first[key], cost)
        for cost in _costs(campaigns, twins)
        if (key := (cost.configuration, cost.setting)) in first
        and first[key].time_s is not None
        and cost.time_s is not None
    ]


def _state(visit: Visit) -> tuple[Weights, Outputs]:
    return visit.weights, visit.wrote_to


def _costs(campaigns: Sequence[Campaign], visits: Iterable[Visit]) -> list[Cost]:
    """Derive costs from the first good visits of each configuration, whatever their role."""
    seen: Counter[tuple[str, str, str]] = Counter()
    chosen = []
    for visit in visits:
        key = visit.configuration, visit.setting, visit.weights
        seen[key] += visit.outcome == "ok"
        if seen[key] <= VISITS:
            chosen.append(replace(visit, role="measurement"))
    return Deriver(campaigns, chosen).costs({})


def _pair(first: Cost, second: Cost) -> Pair:
    return Pair(
        first.configuration,
        first.setting,
        first.board,
        first,
        second,
        _difference(first.time_s, second.time_s),
        _difference(first.energy_j, second.energy_j),
    )


def _difference(first: Quantity | None, second: Quantity | None) -> Difference | None:
    """Return how two quantities differ; None where one lacks an interval, or both are zero."""
    if first is None or second is None or first.mean + second.mean == 0:
        return None
    if (one := first.half_width) is None or (other := second.half_width) is None:
        return None
    combined = math.hypot(one, other)
    apart = second.mean - first.mean
    return Difference(2 * apart / (first.mean + second.mean), abs(apart) <= combined)


def agreement(differences: Iterable[Difference | None]) -> Agreement | None:
    """Sum up the differences of one quantity; None where there is none."""
    found = [difference for difference in differences if difference is not None]
    if not found:
        return None
    return Agreement(
        len(found),
        sum(difference.inside for difference in found),
        statistics.median(abs(difference.relative) for difference in found),
    )
