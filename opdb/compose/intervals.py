"""The uncertainty of a sum of operators: from their own intervals, and from measured models."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from opdb.derive.boards import Factor
from opdb.derive.statistics import t95
from opdb.records import Quantity

PRIOR_MODEL_ERROR = 0.02
PRIOR_DEGREES = 4.0
"""Before any model was validated: a model's sum is trusted to 2 % (one standard deviation), and
that belief weighs as much as four validated runs. Other models' runs never make it less."""

PRIOR_HOST_ERROR = 0.1
"""The same for the time of a pass that waits for its host, from one moment to another."""


def sum_half_width(parts: Iterable[tuple[int, Quantity]]) -> float:
    """Return the half width of Σ count · quantity, the quantities' errors being independent.

    All calls of one configuration share one error, so its count multiplies the width. A quantity
    without an interval adds none.
    """
    return math.sqrt(sum((count * (each.half_width or 0.0)) ** 2 for count, each in parts))


def shared_half_width(parts: Iterable[tuple[float, Factor | None]]) -> float:
    """Return the half width that factors between boards add to a sum.

    `parts` are amounts and the factor that brought each: all amounts that one factor brought share
    its error, two factors err independently.
    """
    amounts: dict[Factor, float] = defaultdict(float)
    for amount, factor in parts:
        if factor is not None:
            amounts[factor] += amount
    return math.hypot(*(amount * factor.half_width for factor, amount in amounts.items()), 0.0)


def model_error(attributions: Sequence[float]) -> float:
    """Return the 95 % half width, on logarithms, that attributions of other models' runs suggest.

    `attributions` are predicted / measured. The spread is about 1, not about their mean, because
    no factor is ever fitted. It is joined with the prior belief, and never less than that: even
    where all others err little, the next model may be the first of its sort.
    """
    degrees, variance = _spread_about_one(attributions, PRIOR_MODEL_ERROR)
    return t95(degrees) * math.sqrt(max(variance, PRIOR_MODEL_ERROR**2))


def host_error(ratios: Sequence[float]) -> float:
    """Return the 95 % half width, on logarithms, of a host's time from one moment to another.

    `ratios` are predicted / measured times of passes that wait for their host: it issued the calls
    at one moment and was timed at another. They are joined with the prior belief.
    """
    degrees, variance = _spread_about_one(ratios, PRIOR_HOST_ERROR)
    return t95(degrees) * math.sqrt(variance)


def _spread_about_one(ratios: Sequence[float], prior: float) -> tuple[float, float]:
    """Return degrees of freedom and variance of logarithms about 0, a prior joined in."""
    errors = [math.log(ratio) for ratio in ratios if ratio > 0]
    degrees = PRIOR_DEGREES + len(errors)
    return degrees, (PRIOR_DEGREES * prior**2 + sum(e * e for e in errors)) / degrees
