"""The width of intervals against the precision asked for: the stopping rule of a bench."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opdb.records import Cost, Quantity

PRECISION = 0.02
"""The default half width of the 95 % interval of an energy, as a share of it."""


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
