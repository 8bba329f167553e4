"""Medians, 3σ-means, and intervals from the variance between visits; standard library alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from opdb.records import Cost, Device, Quantity

MIN_CLIP_COUNT = 11
"""Below 11 values nothing can lie more than 3σ from the mean: at most it lies √(n - 1) σ off."""

AGREEMENT_BOUND = 0.02
"""Median and 3σ-mean further apart than this share are flagged."""

PRIOR_DEGREES = 4.0
"""Weight, in degrees of freedom, of the pooled variance in a configuration's own."""

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def t95(degrees: float) -> float:
    """Return the two-sided 95 % quantile of Student's t, rounded towards the wider interval.

    Above 30 degrees of freedom: the expansion of Cornish and Fisher to second order.
    """
    if degrees < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, not {degrees}")
    if degrees <= len(_T95):
        return _T95[int(degrees) - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def three_sigma_mean(values: Sequence[float]) -> float:
    """Return the mean of the values within 3 standard deviations of the plain mean.

    With fewer than 11 values none can be rejected and this is the plain mean.
    """
    mean = statistics.fmean(values)
    if len(values) < MIN_CLIP_COUNT:
        return mean
    # As statistics.pstdev, which works in fractions and takes two hundred times as long.
    bound = 3 * math.dist(values, [mean] * len(values)) / math.sqrt(len(values))
    if max(values) - mean <= bound and mean - min(values) <= bound:
        return mean
    return statistics.fmean([v for v in values if abs(v - mean) <= bound] or values)


Typical: TypeAlias = Callable[[Sequence[float]], float]


def typical_on(device: Device) -> Typical:
    """Return the function that reduces single times: on a CPU the median, else the 3σ-mean.

    A CPU's times have a tail of interruptions, which belong to other work; one such sample in ten
    sways any mean.
    """
    return statistics.median if device.type == "cpu" else three_sigma_mean


def disagreement(values: Sequence[float]) -> float:
    mean = three_sigma_mean(values)
    return abs(statistics.median(values) - mean) / abs(mean) if mean else 0.0


def trapezoid_mean(samples: Sequence[tuple[float, float]]) -> float | None:
    """Return the time average of (seconds, value) samples by the trapezoid rule; None below two."""
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return None
    area = sum((t1 - t0) * (v0 + v1) / 2 for (t0, v0), (t1, v1) in pairwise(samples))
    return area / (samples[-1][0] - samples[0][0])


def slope(edges: Sequence[tuple[float, float]]) -> float | None:
    if len(edges) < 2 or edges[-1][0] <= edges[0][0]:
        return None
    return (edges[-1][1] - edges[0][1]) / (edges[-1][0] - edges[0][0])


ONE_SIGMA = 0.683
"""Share of normal values that lie within one standard deviation of their mean."""


def pool_spread(
    groups: Iterable[Sequence[float]], scales: Iterable[Sequence[float]] | None = None
) -> float | None:
    """Pool the relative standard deviation between visits, over all configurations with two.

    It is the difference between two visits, over √2, that 68.3 % of all pairs do not exceed. A few
    configurations that scatter widely would dominate a mean of squares; they keep their own spread
    in `half_width`. `scales` are what each value's spread is relative to: the values where None.
    """
    groups = list(groups)
    differences = []
    for values, of in zip(groups, groups if scales is None else scales, strict=True):
        for n in range(0, len(values) - 1, 2):
            scale = (of[n] + of[n + 1]) / 2
            if scale:
                differences.append(abs(values[n] - values[n + 1]) / math.sqrt(2) / abs(scale))
    if not differences:
        return None
    differences.sort()
    # The next larger of few: a spread is rather taken too wide than too narrow.
    place = min(math.ceil(ONE_SIGMA * len(differences)), len(differences)) - 1
    return differences[place]


def half_width(
    values: Sequence[float], pooled: float | None, scale: float | None = None
) -> float | None:
    """Return the half width of the 95 % interval of the mean of visits.

    The pooled spread is relative to `scale`, in the values' unit; to their mean where None.

    A configuration's own variance is shrunk towards the pooled one (moderated variance, Smyth
    2004, doi:10.2202/1544-6115.1027, with a fixed prior weight). None where there is neither a
    second visit nor a pooled spread.
    """
    count, mean = len(values), statistics.fmean(values)
    squares = sum((v - mean) ** 2 for v in values)
    degrees = count - 1.0
    if pooled is not None:
        squares += PRIOR_DEGREES * (pooled * (mean if scale is None else scale)) ** 2
        degrees += PRIOR_DEGREES
    if degrees < 1:
        return None
    deviation = math.sqrt(squares / degrees)
    return t95(degrees) * deviation / math.sqrt(count)


def visit_deviation(half_width: float | None, visits: int) -> float | None:
    """The inverse of `half_width`, with a pooled spread; None where there is no half width."""
    if half_width is None:
        return None
    return half_width * math.sqrt(visits) / t95(visits - 1 + PRIOR_DEGREES)


PRECISION = 0.02
"""As a share of an energy."""


@dataclass(frozen=True)
class Reached:
    """The result of a bench: configurations within the precision, and why others are not.

    `missed` counts the others by reason in words. `unjudged` were timed and have no energy.
    `half_width` is the median half width (a share of the energy), None where none has an interval.
    """

    asked: float
    within: int
    missed: Counter[str]
    unjudged: int
    half_width: float | None


def relative_half_width(quantity: Quantity | None) -> float | None:
    """Return half the width of a quantity's 95 % interval over its mean; None without one."""
    if quantity is None or (width := quantity.half_width) is None:
        return None
    return width / abs(quantity.mean) if quantity.mean else 0.0


def is_within(cost: Cost, asked: float) -> bool:
    """Return whether an energy is as precise as asked; True where there is none to judge."""
    if cost.energy_j is None:
        return True
    width = relative_half_width(cost.energy_j)
    return width is not None and width <= asked


def reached(costs: Iterable[Cost], asked: float, why: Callable[[Cost], str]) -> Reached:
    """Sum up how precise costs are; `why` says in words why one is less precise than asked."""
    found = [cost for cost in costs if cost.time_s is not None]
    judged = [cost for cost in found if cost.energy_j is not None]
    missed = Counter(why(cost) for cost in judged if not is_within(cost, asked))
    widths = [w for cost in judged if (w := relative_half_width(cost.energy_j)) is not None]
    return Reached(
        asked=asked,
        within=len(judged) - missed.total(),
        missed=missed,
        unjudged=len(found) - len(judged),
        half_width=statistics.median(widths) if widths else None,
    )
