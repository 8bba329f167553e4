"""How wide the intervals of sums of estimates are, by the standard deviations of these sums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Width:
    """Half the 95 % interval of a sum's logarithm: `factor` times its deviation to a `power`.

    A power below 1 says that standard deviations differ more than errors do: sums of a small one
    err by more than it says, sums of a large one by less.
    """

    factor: float
    power: float

    def half_width(self, deviation: float) -> float:
        """Return half the interval of a sum with this standard deviation (of its logarithm)."""
        return self.factor * deviation**self.power if deviation > 0 else 0.0


@dataclass(frozen=True)
class SumWidths:
    """The widths of sums of times and of energies; None where no energy was metered."""

    time: Width
    energy: Width | None
