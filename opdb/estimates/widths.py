"""How wide the intervals of sums of estimates are, by the standard deviations of these sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

POWER = 0.7
"""Half an interval grows with a sum's standard deviation to this power: deviations differ more than
errors do. It is what the times of most families showed, the H200s' (docs/estimates.md)."""


@dataclass(frozen=True)
class SumWidths:
    """Half the 95 % intervals of sums (of their logarithms) per unit of their deviations.

    A sum's energy errs with its time, so both go by the deviation of the time; `energy` is None
    where no energy was metered.
    """

    time: float
    energy: float | None


def unit_of(deviation: float) -> float:
    """Return the unit of a sum's half interval: its time's standard deviation to the power."""
    return math.pow(deviation, POWER)
