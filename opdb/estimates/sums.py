"""What sums of estimates err by, and the widths that hold 95 % of these errors.

Each family of models is left out in turn, and what it alone calls is estimated from the rest: of
every stored workload of it, the estimated sum is held against the measured one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from opdb.estimates.estimator import EstimatedSum, Estimator
from opdb.estimates.left_out import PointsLeftOut
from opdb.estimates.training import COVERED, Example
from opdb.estimates.widths import Width
from opdb.records import Cost

LEAST_SHARE = 0.2
"""The least share of a workload's time that its family alone calls, for its sum to count."""

FEWEST_FAMILIES = 10
"""Sums of fewer families of models say too little of how far one in twenty errs."""

POWERS = tuple(step / 10 for step in range(2, 11))
"""The powers of a standard deviation that are tried, up to the deviation itself."""

MISSED = 2 / (1 - COVERED)
"""What an interval score adds for each unit that a truth lies outside (Gneiting and Raftery)."""


@dataclass(frozen=True)
class Work:
    """A workload: its family of models, and how often it calls each configuration (key)."""

    family: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class SumError:
    """A sum's estimate over its measured value, as a logarithm, and the deviation stated of it."""

    family: str
    error: float
    deviation: float


@dataclass(frozen=True)
class SumErrors:
    """The errors of sums of times, and of energies (base power's too)."""

    times: tuple[SumError, ...]
    energies: tuple[SumError, ...]

    def without(self, family: str) -> SumErrors:
        """Return the errors of all other families of models."""
        times, energies = (
            tuple(each for each in errors if each.family != family)
            for errors in (self.times, self.energies)
        )
        return SumErrors(times, energies)

    def given_to(self, estimator: Estimator) -> Estimator:
        """Return an estimator with the widths that these errors say, where they say any."""
        before, time, energy = estimator.sums, fitted(self.times), fitted(self.energies)
        sums = replace(before, time=time or before.time, energy=energy or before.energy)
        return replace(estimator, sums=sums)


def calibrated(
    estimator: Estimator, examples: Sequence[Example], works: Iterable[Work], base_w: float | None
) -> Estimator:
    """Return an estimator with widths of sums, of the examples that it learned from.

    `base_w` is the base power of its board (watts; None: not known).

    Raises:
        InputError: it learned from other examples.
    """
    rest = PointsLeftOut(estimator, examples)
    return errors_of(rest, examples, works, base_w).given_to(estimator)


def errors_of(
    rest: PointsLeftOut, examples: Sequence[Example], works: Iterable[Work], base_w: float | None
) -> SumErrors:
    """Return what the sums over what each workload's family alone calls err by."""
    costs = {e.configuration.key: e.cost for e in examples if e.cost.time_s is not None}
    by_family: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        by_family[work.family].append(work)
    times, energies = [], []
    for family, of_family in sorted(by_family.items()):
        estimates = rest.estimates(rest.of(family))
        for work in of_family:
            counts = {key: n for key, n in work.counts.items() if key in costs}
            own = {key: n for key, n in counts.items() if key in estimates.costs}
            own_s = _seconds(own, costs)
            if not own_s or own_s < LEAST_SHARE * _seconds(counts, costs):
                continue
            time, energy = estimates.sum_of(own, base_w)
            times += _error(family, time, own_s)
            if base_w is not None and energy is not None:
                energies += _error(family, energy, _joules(own, costs, base_w))
    return SumErrors(tuple(times), tuple(energies))


def _seconds(counts: Mapping[str, int], costs: Mapping[str, Cost]) -> float:
    return math.fsum(n * t.mean for k, n in counts.items() if (t := costs[k].time_s) is not None)


def _joules(counts: Mapping[str, int], costs: Mapping[str, Cost], base_w: float) -> float | None:
    """Return the measured energy of calls; None where one was not metered."""
    dynamic = {key: costs[key].dynamic_energy_j for key in counts}
    if any(each is None for each in dynamic.values()):
        return None
    joules = (n * each.mean for key, n in counts.items() if (each := dynamic[key]) is not None)
    return base_w * _seconds(counts, costs) + math.fsum(joules)


def _error(family: str, estimated: EstimatedSum, measured: float | None) -> list[SumError]:
    """Return the error of a sum; none where one of both is not known, or nothing."""
    if measured is None or min(measured, estimated.value, estimated.deviation) <= 0:
        return []
    return [SumError(family, math.log(estimated.value / measured), estimated.deviation)]


def fitted(errors: Sequence[SumError]) -> Width | None:
    """Return the width with the best mean interval score; None where families are too few.

    The sums of a family weigh √n together, so that none decides. For each power the best factor is
    the weighted 95 % quantile of errors over deviations to that power (Koenker and Bassett 1978,
    doi:10.2307/1913643).
    """
    sums = Counter(each.family for each in errors)
    if len(sums) < FEWEST_FAMILIES:
        return None
    weights = [sums[each.family] ** -0.5 for each in errors]
    widths = [Width(_best_factor(errors, weights, power), power) for power in POWERS]
    return min(widths, key=lambda width: _score(errors, weights, width))


def _best_factor(errors: Sequence[SumError], weights: Sequence[float], power: float) -> float:
    """Return the factor beyond which a twentieth of the weighted deviations lies."""
    units = [Width(1.0, power).half_width(each.deviation) for each in errors]
    reaches = sorted(
        (abs(each.error) / unit, weight * unit)
        for each, unit, weight in zip(errors, units, weights, strict=True)
    )
    upto = list(accumulate(weight for _, weight in reaches))
    return round(reaches[bisect_left(upto, COVERED * upto[-1])][0], 5)


def _score(errors: Sequence[SumError], weights: Sequence[float], width: Width) -> float:
    """Return the weighted sum of interval scores (2007, doi:10.1198/016214506000001437)."""
    halves = [width.half_width(each.deviation) for each in errors]
    return math.fsum(
        weight * (2 * half + MISSED * max(0.0, abs(each.error) - half))
        for each, half, weight in zip(errors, halves, weights, strict=True)
    )
