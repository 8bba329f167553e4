"""Ranges of physical quantities, beyond which a number is a mistake or a lie.

They are wide: a thousand times what devices of today reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """The range of a quantity, both ends included unless it has to be positive."""

    low: float
    high: float
    positive: bool = False

    def check(self, value: float) -> None:
        """Check a number.

        Raises:
            ValueError: it lies outside, or is not finite.
        """
        inside = self.low <= value <= self.high and not (self.positive and value == 0)
        if not inside or not math.isfinite(value):
            raise ValueError(f"out of range; allowed: {self}")

    def check_all(self, values: Iterable[float]) -> None:
        """Check numbers by their smallest and largest.

        Raises:
            ValueError: one lies outside, or is not finite.
        """
        some = values if isinstance(values, list | tuple) else list(values)
        if some:
            self.check(min(some))
            self.check(max(some))

    def __str__(self) -> str:
        if self.positive:
            return f"more than 0, {self.high:g} at most"
        return f"{self.low:g} to {self.high:g}"


DURATION_S = Range(0, 1e8)
"""Seconds of anything: three years."""

POSITIVE_S = Range(0, 1e8, positive=True)
POWER_W = Range(0, 1e6)
POSITIVE_W = Range(0, 1e6, positive=True)
ENERGY_J = Range(0, 1e12)
CLOCK_HZ = Range(0, 1e12)
POSITIVE_HZ = Range(0, 1e12, positive=True)
POSITIVE_BYTES = Range(0, 1e18, positive=True)
COUNT = Range(0, 1e12)
POSITIVE_COUNT = Range(1, 1e12)

DIFFERENCE_S = Range(-1e8, 1e8)
"""Seconds that are a difference of two measurements: below 0 where the call is less than noise."""

DIFFERENCE_W = Range(-1e6, 1e6)
DIFFERENCE_J = Range(-1e12, 1e12)
SHARE = Range(0, 1.01)
POSITIVE_SHARE = Range(0, 1.01, positive=True)
TEMPERATURE_C = Range(-200, 1000)
