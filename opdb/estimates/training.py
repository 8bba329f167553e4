"""Learn estimates from costs; what comes out is data."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

from opdb.errors import InputError
from opdb.estimates.estimator import Estimator, KindMedians, Learned, Reach, Trend
from opdb.estimates.features import KIND, PASSES, STATES, Features, features
from opdb.estimates.process import Matrix, Process, left_out, with_noise
from opdb.estimates.roofline import Roofline, roofline
from opdb.estimates.tuning import tuned
from opdb.estimates.widths import SumWidths
from opdb.kinds import KINDS
from opdb.records import Configuration, Cost, Form, Quantity
from opdb.units import plural

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
    """A measured configuration, and the models, or families of such, that use it.

    What one of them alone uses is left out together.
    """

    configuration: Configuration
    cost: Cost
    models: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Point:
    """An example as training sees it: numbers, time (seconds), dynamic power (watts) or None.

    `only_user` is the one model that uses it, None where several do or none.
    """

    of: Features
    time_s: float
    dynamic_w: float | None
    only_user: str | None


def train(examples: Iterable[Example], *, device: str, board: str, trained_at: str) -> Estimator:
    """Learn from measured configurations.

    Sums are as wide as the least sure family's single estimates; `sums.calibrated` says better.

    Raises:
        InputError: too few of them launch a kernel.
    """
    given = sorted(examples, key=lambda example: example.configuration.key)
    points = [_point(e) for e in given if usable(e)]
    if len(points) < FEWEST_POINTS:
        raise InputError(
            f"too few to learn from: {plural(len(points), 'measured configuration')}; it takes "
            f"{FEWEST_POINTS}"
        )
    under = roofline((p.of, p.time_s) for p in points)
    families: dict[str, list[_Point]] = defaultdict(list)
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


def _as_wide_as_single(reaches: Sequence[Reach]) -> SumWidths:
    """Return the widths of sums before any is known: those of the least sure single estimates."""
    energies = [reach.energy for reach in reaches if reach.energy is not None]
    time = max((reach.time for reach in reaches), default=0.0)
    return SumWidths(time, max(energies, default=None))


def usable(example: Example) -> bool:
    """Return whether an example has the time of a forward or backward call with kernels."""
    configuration, cost = example.configuration, example.cost
    return (
        configuration.kind in KINDS
        and configuration.pass_name in PASSES
        and cost.time_s is not None
        and cost.time_s.mean > 0
        and cost.kernels != 0
        and features(configuration).launches
    )


def _point(example: Example) -> _Point:
    cost = example.cost
    assert cost.time_s is not None
    dynamic = cost.dynamic_energy_j
    return _Point(
        features(example.configuration),
        cost.time_s.mean,
        dynamic.mean / cost.time_s.mean if dynamic and dynamic.mean > 0 else None,
        next(iter(example.models)) if len(example.models) == 1 else None,
    )


def some(points: Sequence[T], most: int) -> Sequence[T]:
    """Return at most this many of the points, drawn the same way every time."""
    if len(points) <= most:
        return points
    drawn = np.random.default_rng(0).permutation(len(points))[:most]
    return [points[i] for i in sorted(drawn)]


def _learn(points: Sequence[_Point], under: Roofline) -> Learned:
    """Learn a family of kinds."""
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


def _levels(points: Sequence[_Point], slower: Matrix) -> dict[str, float]:
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
    """Learn the kernel from some points, and keep all points."""
    mean = round(float(values.mean()), 6)
    drawn = np.random.default_rng(0).permutation(len(places))[:MOST_TUNED]
    names = [KIND if column.startswith(KIND) else column for column in columns]
    kernel = tuned(places[drawn], values[drawn] - mean, names)
    return Process.through(kernel, mean, places, values)


@dataclass(frozen=True)
class _LeftOut:
    """The errors of a fold's points, estimated from all other folds, and their covariance."""

    rows: list[int]
    errors: Matrix
    covariance: Matrix

    def normalised(self) -> list[float]:
        """Return each error over its standard deviation."""
        return [float(e) for e in self.errors / np.sqrt(np.diag(self.covariance))]


def _left_out(process: Process, values: Matrix, folds: Sequence[str]) -> dict[str, _LeftOut]:
    """Leave out each fold of a process's points, which have these values, in turn."""
    inverse = np.linalg.inv(with_noise(process.kernel, process.points))
    weights = inverse @ (values - process.mean)
    rows: dict[str, list[int]] = defaultdict(list)
    for row, fold in enumerate(folds):
        rows[fold].append(row)
    return {
        fold: _LeftOut(out, *left_out(inverse, weights, out)) for fold, out in sorted(rows.items())
    }


def _folds(points: Sequence[_Point], metered: Sequence[int]) -> list[str]:
    """Return which points are left out together: those of one model, the others by lot.

    By lot all of them, where too few models were measured to leave one out.
    """
    lots = [f"{PART}{i % FOLDS}" for i in range(len(points))]
    folds = [p.only_user or lot for p, lot in zip(points, lots, strict=True)]
    fewest = min(len({folds[i] for i in rows}) for rows in (range(len(points)), metered) if rows)
    return folds if fewest >= FEWEST_FOLDS else lots


def _reach(
    points: Sequence[_Point],
    metered: Sequence[int],
    time: tuple[Process, Matrix],
    power: tuple[Process, Matrix] | None,
) -> Reach:
    """Return how many standard deviations hold 95 % of what is left out and estimated.

    `time` and `power` are processes and the values that their points have.
    """
    folds = _folds(points, metered)
    times = _left_out(*time, folds)
    if power is None:
        return Reach(_single(times), None)
    energies = {
        fold: _joined(times[fold], left, metered)
        for fold, left in _left_out(*power, [folds[i] for i in metered]).items()
    }
    return Reach(_single(times), _single(energies))


def _joined(time: _LeftOut, power: _LeftOut, metered: Sequence[int]) -> _LeftOut:
    """Return what is left out of the energy, which is time times power."""
    rows = [metered[i] for i in power.rows]
    at = [time.rows.index(row) for row in rows]
    covariance = time.covariance[np.ix_(at, at)] + power.covariance
    return _LeftOut(rows, time.errors[at] + power.errors, covariance)


def _single(left: Mapping[str, _LeftOut]) -> float:
    """Return the reach of single estimates."""
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
    """Return the median host time by form, with the range of 95 % of what was measured."""
    seen: dict[Form, list[float]] = defaultdict(list)
    for form, quantity in chain.from_iterable(c.host_time_s.items() for c in costs):
        seen[form].append(quantity.mean)
    found = {}
    for form, times in sorted(seen.items()):
        middle = statistics.median(times)
        low, high = np.quantile(times, [(1 - COVERED) / 2, (1 + COVERED) / 2])
        found[form] = Quantity(middle, middle, float(low), float(high), len(times))
    return found
