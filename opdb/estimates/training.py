"""Learn estimates from costs, and how far sums of them err; what comes out is data."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, TypeVar

import numpy as np

from opdb.errors import InputError
from opdb.estimates.estimator import (
    Covariance,
    Estimates,
    Estimator,
    KindMedians,
    Learned,
    Matrix,
    Process,
    Trend,
    Widths,
    _Asked,
    _Covariances,
    left_out,
    unit_of,
    with_noise,
)
from opdb.estimates.features import KIND, PASSES, STATES, Features, Roofline, features, roofline
from opdb.kinds import KINDS
from opdb.records import Configuration, Cost, Form, Quantity
from opdb.units import plural

# The kernel under which measured values are most likely, its length scales held by a prior.
#
# The marginal likelihood and its gradient: Rasmussen and Williams (2006), equations 5.8 and 5.9.


TYPICAL_LENGTH, LENGTH_SPREAD = 3.0, 0.7
"""The prior of a length scale, in standard deviations of its number: the median, and the standard
deviation of the logarithm. Without it, twenty lengths fit whatever few models there are."""

LEAST_NOISE, MOST_NOISE = 0.005, 0.5
"""The least variance that no point explains of another: 7 % of a time (what libraries choose for
one size and not for the next). With less, the narrowest intervals held too few truths."""

ITERATIONS = 40
_START = (0.2, TYPICAL_LENGTH, 0.01)  # variance, lengths, noise
_VARIANCES, _LENGTHS = (0.01, 10.0), (0.1, 300.0)


def tuned(places: Matrix, values: Matrix, names: Sequence[str]) -> Covariance:
    """For n values of mean 0; columns of `places` (n, d) of one name (d) share a length scale."""
    from scipy.optimize import minimize

    different = list(dict.fromkeys(names))
    member = np.array([[float(name == each) for each in different] for name in names])
    variance, length, noise = (math.log(each) for each in _START)
    found = minimize(
        _unlikelihood,
        np.array([variance, *[length] * len(different), noise]),
        args=(places, values, member),
        jac=True,
        method="L-BFGS-B",
        bounds=[
            np.log(_VARIANCES),
            *[np.log(_LENGTHS)] * len(different),
            np.log((LEAST_NOISE, MOST_NOISE)),
        ],
        options={"maxiter": ITERATIONS},
    )
    variance, *lengths, noise = np.exp(found.x)
    of_columns = (member @ lengths).round(5).tolist()
    return Covariance(float(variance), tuple(of_columns), float(noise))


def _unlikelihood(
    logarithms: Matrix, places: Matrix, values: Matrix, member: Matrix
) -> tuple[float, Matrix]:
    """Return the negative logarithm of likelihood and prior, and its gradient.

    `logarithms` are of the variance, the lengths, and the noise; `member` (d, lengths) says which
    length each column has.
    """
    variance, *lengths, noise = np.exp(logarithms)
    at = places / (member @ lengths)
    kernel = Covariance(variance, (1.0,) * at.shape[1], noise)
    smooth = kernel.between(at, at)
    known = np.linalg.inv(smooth + noise * np.eye(len(at)))
    weights = known @ values
    _, volume = np.linalg.slogdet(known)
    off = (logarithms[1:-1] - math.log(TYPICAL_LENGTH)) / LENGTH_SPREAD
    value = 0.5 * float(values @ weights - volume + off @ off)
    unexplained = known - np.outer(weights, weights)
    # A Matérn kernel with ν = 3/2 falls by 3 σ² e^(−√3 r) Δ² for each logarithm of a length.
    squares = np.sum(at**2, axis=1)
    apart = np.sqrt(3 * np.maximum(squares[:, None] + squares[None] - 2 * at @ at.T, 0.0))
    falling = unexplained * 3 * variance * np.exp(-apart)
    columns = falling.sum(axis=1) @ at**2 - np.sum(at * (falling @ at), axis=0)
    gradient = np.array(
        [
            0.5 * np.sum(unexplained * smooth),
            *(columns @ member + off / LENGTH_SPREAD),
            0.5 * noise * np.trace(unexplained),
        ]
    )
    return value, gradient


# Learn estimates from costs; what comes out is data.


MOST_POINTS = 6000
"""Configurations that a family learns from at most, drawn at random: the work grows with their
cube."""

MOST_TUNED = 1600
"""Configurations that length scales are found on at most."""

FEWEST_POINTS = 12
"""A family with fewer learns nothing."""

SLOWER_KNOTS, WATTS_KNOTS = 2, 8
BENDING = 10.0
"""Of the lines that say what is usual of a family's calls: how far they lie above the roofline
falls steadily with its time, their power rises with their own and then stays."""

SMALLEST_SCALE = 0.3
KIND_SCALE = 0.5
"""Numbers are divided by their standard deviation; that of a number nearly always the same, and of
which kind it is, counts as this."""

LEVEL_PRIOR = 4.0
"""A kind's level is shrunk towards the family's mean as if it had this many points there."""

FOLDS = 8
"""Parts into which configurations of no model, or of several, are drawn to be left out."""

FEWEST_FOLDS = 3
PART = "part "
COVERED = 0.95

T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """What a model, or a family of such, alone uses is left out together."""

    configuration: Configuration
    cost: Cost
    models: frozenset[str] = frozenset()

    @property
    def of(self) -> Features:
        return features(self.configuration)

    @property
    def time_s(self) -> float:
        assert self.cost.time_s is not None
        return self.cost.time_s.mean

    @property
    def dynamic_w(self) -> float | None:
        """The mean power above base power; None where none was metered."""
        dynamic = self.cost.dynamic_energy_j
        return dynamic.mean / self.time_s if dynamic and dynamic.mean > 0 else None


def train(examples: Iterable[Example], *, device: str, board: str, trained_at: str) -> Estimator:
    """Sums are as wide as the least sure single estimates; `calibrated` says better."""
    given = sorted(examples, key=lambda example: example.configuration.key)
    points = [example for example in given if usable(example)]
    if len(points) < FEWEST_POINTS:
        raise InputError(
            f"too few to learn from: {plural(len(points), 'measured configuration')}; it takes "
            f"{FEWEST_POINTS}"
        )
    under = roofline((p.of, p.time_s) for p in points)
    families: dict[str, list[Example]] = defaultdict(list)
    for point in points:
        families[point.of.family].append(point)
    learned = {
        name: _learn(some(found, MOST_POINTS), under)
        for name, found in families.items()
        if len(found) >= FEWEST_POINTS
    }
    return Estimator(
        device=device,
        board=board,
        trained_at=trained_at,
        configurations=len(points),
        roofline=under,
        families=learned,
        usual=_usual(given),
        sums=_as_wide_as_single([one.reach for one in learned.values()]),
    )


def _as_wide_as_single(reaches: Sequence[Widths]) -> Widths:
    energies = [reach.energy for reach in reaches if reach.energy is not None]
    time = max((reach.time for reach in reaches), default=0.0)
    return Widths(time, max(energies, default=None))


def usable(example: Example) -> bool:
    configuration, cost = example.configuration, example.cost
    return (
        configuration.kind in KINDS
        and configuration.pass_name in PASSES
        and cost.time_s is not None
        and cost.time_s.mean > 0
        and cost.kernels != 0
        and features(configuration).launches
    )


def some(points: Sequence[T], most: int) -> Sequence[T]:
    if len(points) <= most:
        return points
    drawn = np.random.default_rng(0).permutation(len(points))[:most]
    return [points[i] for i in sorted(drawn)]


def _learn(points: Sequence[Example], under: Roofline) -> Learned:
    columns, centre, scale, places = placed([p.of for p in points])
    slower = np.array([under.slower(p.of, p.time_s) for p in points])
    roofs_s = np.array([under.time_s(p.of) / p.of.steps for p in points])
    usual = _trend(roofs_s, slower, SLOWER_KNOTS)
    slower -= usual.at(roofs_s)
    levels = _levels(points, slower)
    metered = [i for i, p in enumerate(points) if p.dynamic_w is not None]
    above = slower - np.array([levels[p.of.kind] for p in points])
    watts = np.array([math.log(p.dynamic_w) for p in points if p.dynamic_w is not None])
    time = _process(columns, places, above)
    power = usual_watts = None
    if len(metered) >= FEWEST_POINTS:
        steps_s = np.array([points[i].time_s / points[i].of.steps for i in metered])
        usual_watts = _trend(steps_s, watts, WATTS_KNOTS)
        watts -= usual_watts.at(steps_s)
        power = _process(columns, places[metered], watts)
    return Learned(
        columns=columns,
        centre=centre,
        scale=scale,
        levels=levels,
        slower=usual,
        watts=usual_watts,
        dtypes=frozenset(p.of.dtype for p in points),
        time=time,
        power=power,
        metered=() if power is None else tuple(metered),
        reach=_reach(points, metered, (time, above), None if power is None else (power, watts)),
    )


def _trend(times_s: Matrix, values: Matrix, count: int) -> Trend:
    """Return lines between `count` knots through n values at n times (seconds), by least squares.

    Knots lie in equal ratios. That lines bend costs as much as `BENDING` points that are off by it:
    few points do not bend them.
    """
    at = np.log(times_s)
    knots = np.linspace(at.min(), at.max(), count if at.min() < at.max() else 1)
    count = len(knots)
    hats = np.array([np.interp(at, knots, unit) for unit in np.eye(count)]).T
    bends = np.diff(np.eye(count), 2, axis=0)
    found = np.linalg.solve(hats.T @ hats + BENDING * bends.T @ bends, hats.T @ values)
    return Trend(tuple(np.round(knots, 5).tolist()), tuple(np.round(found, 5).tolist()))


def _levels(points: Sequence[Example], slower: Matrix) -> dict[str, float]:
    """Return by how much each kind lies above the family's mean, the less the fewer it has."""
    mean, by_kind = float(slower.mean()), defaultdict(list)
    for point, value in zip(points, slower, strict=True):
        by_kind[point.of.kind].append(float(value) - mean)
    return {
        kind: round(math.fsum(values) / (len(values) + LEVEL_PRIOR), 6)
        for kind, values in sorted(by_kind.items())
    }


def placed(
    members: Sequence[Features],
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...], Matrix]:
    """Return the names of the numbers in which members differ, means, scales, and scaled rows."""
    kinds = sorted({of.kind for of in members})
    names, centres, scales = [], [], []
    for name in [*members[0].numbers, *(KIND + kind for kind in kinds)]:
        values = [of.number(name) for of in members]
        spread = statistics.pstdev(values)
        if spread > 0 or (name in STATES and any(values)):
            names.append(name)
            centres.append(round(statistics.fmean(values), 6))
            scale = KIND_SCALE if name.startswith(KIND) else max(spread, SMALLEST_SCALE)
            scales.append(round(scale, 6))
    at = np.array([[of.number(name) for name in names] for of in members])
    places = np.float32(np.round((at - np.array(centres)) / np.array(scales), 5)).astype(float)
    return tuple(names), tuple(centres), tuple(scales), places


def _process(columns: Sequence[str], places: Matrix, values: Matrix) -> Process:
    mean = round(float(values.mean()), 6)
    drawn = np.random.default_rng(0).permutation(len(places))[:MOST_TUNED]
    names = [KIND if column.startswith(KIND) else column for column in columns]
    kernel = tuned(places[drawn], values[drawn] - mean, names)
    return Process.through(kernel, mean, places, values)


@dataclass(frozen=True)
class _LeftOut:
    rows: list[int]
    errors: Matrix
    covariance: Matrix

    def normalised(self) -> list[float]:
        return [float(e) for e in self.errors / np.sqrt(np.diag(self.covariance))]


def _left_out(process: Process, values: Matrix, folds: Sequence[str]) -> dict[str, _LeftOut]:
    inverse = np.linalg.inv(with_noise(process.kernel, process.points))
    weights = inverse @ (values - process.mean)
    rows: dict[str, list[int]] = defaultdict(list)
    for row, fold in enumerate(folds):
        rows[fold].append(row)
    return {
        fold: _LeftOut(out, *left_out(inverse, weights, out)) for fold, out in sorted(rows.items())
    }


def _folds(points: Sequence[Example], metered: Sequence[int]) -> list[str]:
    """Those of one model together, others by lot; all by lot where too few models were measured."""
    lots = [f"{PART}{i % FOLDS}" for i in range(len(points))]
    folds = [
        next(iter(p.models)) if len(p.models) == 1 else lot
        for p, lot in zip(points, lots, strict=True)
    ]
    fewest = min(len({folds[i] for i in rows}) for rows in (range(len(points)), metered) if rows)
    return folds if fewest >= FEWEST_FOLDS else lots


def _reach(
    points: Sequence[Example],
    metered: Sequence[int],
    time: tuple[Process, Matrix],
    power: tuple[Process, Matrix] | None,
) -> Widths:
    """Return how many standard deviations hold 95 % of what is left out and estimated.

    `time` and `power` are processes and the values that their points have.
    """
    folds = _folds(points, metered)
    times = _left_out(*time, folds)
    if power is None:
        return Widths(_single(times), None)
    energies = {
        fold: _joined(times[fold], left, metered)
        for fold, left in _left_out(*power, [folds[i] for i in metered]).items()
    }
    return Widths(_single(times), _single(energies))


def _joined(time: _LeftOut, power: _LeftOut, metered: Sequence[int]) -> _LeftOut:
    """Return what is left out of the energy, which is time times power."""
    rows = [metered[i] for i in power.rows]
    at = [time.rows.index(row) for row in rows]
    covariance = time.covariance[np.ix_(at, at)] + power.covariance
    return _LeftOut(rows, time.errors[at] + power.errors, covariance)


def _single(left: Mapping[str, _LeftOut]) -> float:
    return _conformal([error for each in left.values() for error in each.normalised()])


def _conformal(normalised: Collection[float]) -> float:
    """Return the conformal 95 % quantile of absolute values: ⌈(n + 1) · 0.95⌉ of n in order.

    The largest where there are fewer than 20 (Vovk, Gammerman and Shafer, 2005).
    """
    ordered = sorted(abs(error) for error in normalised)
    rank = math.ceil((len(ordered) + 1) * COVERED)
    return round(ordered[min(rank, len(ordered)) - 1], 5)


def _usual(examples: Sequence[Example]) -> dict[str, KindMedians]:
    by_kind: dict[str, list[Cost]] = defaultdict(list)
    for example in examples:
        if example.cost.time_s is not None:
            by_kind[example.configuration.title].append(example.cost)
    return {
        kind: KindMedians(
            kernels=round(statistics.median([c.kernels for c in costs if c.kernels] or [0])),
            eager_s=statistics.median(
                [
                    c.eager_time_s.mean - c.time_s.mean
                    for c in costs
                    if c.kernels and c.eager_time_s and c.time_s
                ]
                or [0.0]
            ),
            host_s=_usual_host_s(costs),
        )
        for kind, costs in sorted(by_kind.items())
    }


def _usual_host_s(costs: Sequence[Cost]) -> Mapping[Form, Quantity]:
    seen: dict[Form, list[float]] = defaultdict(list)
    for form, quantity in chain.from_iterable(c.host_time_s.items() for c in costs):
        seen[form].append(quantity.mean)
    found = {}
    for form, times in sorted(seen.items()):
        middle = statistics.median(times)
        low, high = np.quantile(times, [(1 - COVERED) / 2, (1 + COVERED) / 2])
        found[form] = Quantity(middle, middle, float(low), float(high), len(times))
    return found


# Estimates of what one family of models alone calls, as if it had never been measured.
#
# Nothing is learned anew: what the learned points say without some of them follows from blocks of
# the inverse of their covariance. The kernels (some thirty lengths) and the kinds' levels did see
# all.


@dataclass(frozen=True)
class _Family:
    """A family of kinds: its examples in the order of the learned points, and both inverses."""

    learned: Learned
    examples: Sequence[Example]
    time: tuple[Any, Any]
    power: tuple[Any, Any] | None


class PointsLeftOut:
    def __init__(self, estimator: Estimator, examples: Sequence[Example]) -> None:
        self._estimator = estimator
        by_family: dict[str, list[Example]] = defaultdict(list)
        for example in sorted(examples, key=lambda e: e.configuration.key):
            if usable(example):
                by_family[example.of.family].append(example)
        self._families = {}
        for name, learned in estimator.families.items():
            of = some(by_family[name], MOST_POINTS)
            if len(of) != len(learned.time.points):
                raise InputError(
                    f"{name}: {len(of)} examples, {len(learned.time.points)} learned points: "
                    "python -m opdb.estimates makes estimates of this database"
                )
            power = None if learned.power is None else _inverse(learned.power)
            self._families[name] = _Family(learned, of, _inverse(learned.time), power)

    def of(self, family: str) -> set[str]:
        learned = (e for each in self._families.values() for e in each.examples)
        return {e.configuration.key for e in learned if e.models == {family}}

    def estimates(self, out: Collection[str]) -> Estimates:
        found = Estimates(self._estimator.board, self._estimator.sums)
        for family in self._families.values():
            rows = [i for i, e in enumerate(family.examples) if e.configuration.key in out]
            if rows:
                self._add(family, rows, found)
        return found

    def _add(self, family: _Family, rows: Sequence[int], found: Estimates) -> None:
        learned, roofline = family.learned, self._estimator.roofline
        asked = [_Asked(e.configuration, e.of, None) for e in (family.examples[i] for i in rows)]
        above, covariance = left_out(*family.time, rows)
        covariance = learned.together(asked, covariance)
        usuals = learned.slower.at([roofline.time_s(each.of) / each.of.steps for each in asked])
        slower = [
            roofline.slower(each.of, family.examples[i].time_s)
            - learned.levels[each.of.kind]
            - usual
            + off
            for i, each, off, usual in zip(rows, asked, above, usuals, strict=True)
        ]
        watts, of_power = _powers(family, rows, asked)
        keys = [each.configuration.key for each in asked]
        block = _Covariances(keys, covariance, of_power, learned.reach)
        self._estimator._add(learned, asked, (slower, watts), block, found)


def _powers(
    family: _Family, rows: Sequence[int], asked: Sequence[_Asked]
) -> tuple[Matrix | None, Matrix | None]:
    """Logarithms of watts over the usual, and their covariance; rows without power are left in."""
    learned = family.learned
    if learned.power is None or family.power is None or learned.watts is None:
        return None, None
    watts, covariance = learned.power.at([learned.scaled(each.of) for each in asked])
    took_s = [family.examples[row].time_s / a.of.steps for row, a in zip(rows, asked, strict=True)]
    usual = learned.watts.at(took_s)
    at_point = {row: point for point, row in enumerate(learned.metered)}
    places = [k for k, row in enumerate(rows) if row in at_point]
    off, block = left_out(*family.power, [at_point[rows[k]] for k in places])
    for k, error in zip(places, off, strict=True):
        own_w = family.examples[rows[k]].dynamic_w
        assert own_w is not None
        watts[k] = math.log(own_w) - usual[k] + error
    covariance[np.ix_(places, places)] = block
    return watts, covariance


def _inverse(process: Process) -> tuple[Any, Any]:
    return np.linalg.inv(with_noise(process.kernel, process.points)), process.weights


# What sums of estimates err by, and the widths that hold 95 % of these errors.
#
# Each family of models is left out in turn, and what it alone calls is estimated from the rest: of
# every stored workload of it, the estimated sum is held against the measured one.


LEAST_SHARE = 0.2
"""The least share of a workload's time that its family alone calls, for its sum to count."""

FEWEST_FAMILIES = 10
"""Sums of fewer families of models say too little of how far one in twenty errs."""


@dataclass(frozen=True)
class CountedWork:
    """A workload: its family of models, and how often it calls each configuration (key)."""

    family: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class SumError:
    """A sum's estimate over its measured value, as a logarithm, and the deviation of its time."""

    family: str
    error: float
    deviation: float


def widened(
    estimator: Estimator, times: Sequence[SumError], energies: Sequence[SumError]
) -> Estimator:
    before, time, energy = estimator.sums, width_of(times), width_of(energies)
    sums = Widths(time=time or before.time, energy=energy or before.energy)
    return replace(estimator, sums=sums)


def calibrated(
    estimator: Estimator,
    examples: Sequence[Example],
    works: Iterable[CountedWork],
    base_w: float | None,
) -> Estimator:
    """`base_w` is the base power of its board (watts; None: not known)."""
    rest = PointsLeftOut(estimator, examples)
    return widened(estimator, *errors_of(rest, examples, works, base_w))


def errors_of(
    rest: PointsLeftOut,
    examples: Sequence[Example],
    works: Iterable[CountedWork],
    base_w: float | None,
) -> tuple[list[SumError], list[SumError]]:
    """Of what each workload's family alone calls: of times, and of energies (base power's too)."""
    costs = {e.configuration.key: e.cost for e in examples if e.cost.time_s is not None}
    by_family: dict[str, list[CountedWork]] = defaultdict(list)
    for work in works:
        by_family[work.family].append(work)
    times: list[SumError] = []
    energies: list[SumError] = []
    for family, of_family in sorted(by_family.items()):
        estimates = rest.estimates(rest.of(family))
        for work in of_family:
            counts = {key: n for key, n in work.counts.items() if key in costs}
            own = {key: n for key, n in counts.items() if key in estimates.costs}
            own_s = _sum_s(own, costs)
            if not own_s or own_s < LEAST_SHARE * _sum_s(counts, costs):
                continue
            found = estimates.sum_of(own, base_w)
            times += _error(family, found.time_s, own_s, found.deviation)
            if base_w is not None and found.energy_j is not None:
                own_j = _sum_j(own, costs, base_w)
                energies += _error(family, found.energy_j, own_j, found.deviation)
    return times, energies


def _sum_s(counts: Mapping[str, int], costs: Mapping[str, Cost]) -> float:
    return math.fsum(n * t.mean for k, n in counts.items() if (t := costs[k].time_s) is not None)


def _sum_j(counts: Mapping[str, int], costs: Mapping[str, Cost], base_w: float) -> float | None:
    dynamic = {key: costs[key].dynamic_energy_j for key in counts}
    if any(each is None for each in dynamic.values()):
        return None
    joules = (n * each.mean for key, n in counts.items() if (each := dynamic[key]) is not None)
    return base_w * _sum_s(counts, costs) + math.fsum(joules)


def _error(
    family: str, estimated: float, measured: float | None, deviation: float
) -> list[SumError]:
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
