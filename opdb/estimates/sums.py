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

from opdb.estimates.estimator import Estimator
from opdb.estimates.left_out import PointsLeftOut
from opdb.estimates.training import COVERED, Example
from opdb.estimates.widths import unit_of
from opdb.records import Cost

LEAST_SHARE = 0.2
"""The least share of a workload's time that its family alone calls, for its sum to count."""

FEWEST_FAMILIES = 10
"""Sums of fewer families of models say too little of how far one in twenty errs."""


@dataclass(frozen=True)
class Work:
    """A workload: its family of models, and how often it calls each configuration (key)."""

    family: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class SumError:
    """A sum's estimate over its measured value, as a logarithm, and the deviation of its time."""

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
        before, time, energy = estimator.sums, width_of(self.times), width_of(self.energies)
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
            found = estimates.sum_of(own, base_w)
            times += _error(family, found.time_s, own_s, found.deviation)
            if base_w is not None and found.energy_j is not None:
                own_j = _joules(own, costs, base_w)
                energies += _error(family, found.energy_j, own_j, found.deviation)
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


def _error(
    family: str, estimated: float, measured: float | None, deviation: float
) -> list[SumError]:
    """Return the error of a sum; none where one of both is not known, or nothing."""
    if measured is None or min(measured, estimated, deviation) <= 0:
        return []
    return [SumError(family, math.log(estimated / measured), deviation)]


def width_of(errors: Sequence[SumError]) -> float | None:
    """Return half the 95 % interval per unit of a sum; None where families are too few.

    It is the quantile of errors per unit with the best interval score (Koenker and Bassett 1978,
    doi:10.2307/1913643). The n sums of a family err alike: they weigh √n together, so that none
    decides, and count as so many independent ones. Of m in all the level is the conformal one,
    0.95 (m + 1) / m (Vovk, Gammerman and Shafer, 2005).
    """
    sums = Counter(each.family for each in errors)
    if len(sums) < FEWEST_FAMILIES:
        return None
    units = [unit_of(each.deviation) for each in errors]
    reaches = sorted(
        (abs(each.error) / unit, unit * sums[each.family] ** -0.5)
        for each, unit in zip(errors, units, strict=True)
    )
    upto = list(accumulate(weight for _, weight in reaches))
    independent = math.fsum(count**0.5 for count in sums.values())
    level = min(1.0, COVERED * (independent + 1) / independent)
    return round(reaches[bisect_left(upto, level * upto[-1])][0], 5)
