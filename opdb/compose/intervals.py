"""How sure a sum of operators is: what the operators say of themselves, and what models showed."""

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
that belief weighs as much as four validated runs. So is a host, from one moment to another."""


def half_width(quantity: Quantity) -> float:
    """Return half the width of a quantity's interval; 0 where it has none."""
    if quantity.low is None or quantity.high is None:
        return 0.0
    return (quantity.high - quantity.low) / 2


def sum_half_width(parts: Iterable[tuple[int, Quantity]]) -> float:
    """Return the half width of Σ count · quantity, the quantities' errors being independent.

    All calls of one configuration share one error, so its count multiplies the width.
    """
    return math.sqrt(sum((count * half_width(quantity)) ** 2 for count, quantity in parts))


def shared_half_width(parts: Iterable[tuple[float, Factor | None]]) -> float:
    """Return the half width that factors between boards add to a sum.

    `parts` are amounts and the factor that brought each: what one brought errs all alike, two are
    independent.
    """
    amounts: dict[Factor, float] = defaultdict(float)
    for amount, factor in parts:
        if factor is not None:
            amounts[factor] += amount
    return math.hypot(*(amount * factor.half_width for factor, amount in amounts.items()), 0.0)


def model_error(attributions: Sequence[float]) -> float:
    """Return the relative 95 % half width that attributions of other models' runs suggest.

    `attributions` are predicted / measured. The spread is about 1, not about their mean, because
    no factor is ever fitted; it is joined with the prior belief.
    """
    return _spread_about_one(attributions)


def host_error(ratios: Sequence[float]) -> float:
    """Return the relative 95 % half width of what a host takes, as its moments suggest.

    `ratios` are what the same calls took at one moment over another. A run and what its operators'
    host times were measured at are two moments as well, so they differ as those do. 0 where no
    call was timed at two moments: then the attributions alone tell.
    """
    return _spread_about_one(ratios) if ratios else 0.0


def _spread_about_one(ratios: Sequence[float]) -> float:
    errors = [math.log(ratio) for ratio in ratios if ratio > 0]
    degrees = PRIOR_DEGREES + len(errors)
    variance = (PRIOR_DEGREES * PRIOR_MODEL_ERROR**2 + sum(e * e for e in errors)) / degrees
    return t95(degrees) * math.sqrt(variance)
