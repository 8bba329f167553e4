"""What is derived from visits: what one call costs on one board."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from opdb.records.words import Form


@dataclass(frozen=True)
class Quantity:
    """An estimated quantity: median, 3σ-mean, and the 95 % confidence interval of the mean.

    `low` and `high` are None where one visit stands alone and nothing says how visits spread.
    """

    median: float
    mean: float
    low: float | None
    high: float | None
    count: int

    def moved(self, by: float) -> Quantity:
        """Return the quantity with another mean and the same width."""
        return Quantity(
            self.median + by,
            self.mean + by,
            None if self.low is None else self.low + by,
            None if self.high is None else self.high + by,
            self.count,
        )


@dataclass(frozen=True)
class OperatingPoint:
    """One call in another state than usual: what its visits there saw, on average.

    At a lowered clock (visits at the power limit), or with weights that stayed in the L2.
    """

    clock_hz: float | None
    time_s: float
    dynamic_energy_j: float | None


@dataclass(frozen=True)
class Cost:
    """What one call of a configuration costs on one board, derived from its visits.

    Any quantity may be None; `reasons` then says why, by the quantity's name. `time_s` and the
    energies are per call inside a CUDA graph, with the device kept busy; `eager_time_s` is the
    device's time when the call is issued eagerly, the gaps between kernels included (None where
    the two are one, as on a CPU); `host_time_s` is what the issuing thread spends, by form.
    """

    configuration: str
    board: str
    setting: str
    estimator: str
    visits: int
    kernels: int | None
    time_s: Quantity | None
    eager_time_s: Quantity | None
    power_w: Quantity | None
    energy_j: Quantity | None
    dynamic_energy_j: Quantity | None
    host_time_s: Mapping[Form, Quantity] = field(default_factory=dict)
    clock_hz: float | None = None
    limited: OperatingPoint | None = None
    hot: OperatingPoint | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def is_estimated(self) -> bool:
        """Whether it was learned from other configurations: it has a time and no visit."""
        return self.visits == 0 and self.time_s is not None

    @property
    def impossible(self) -> str | None:
        """Say which quantity no visits can give: one that is not finite, or negative.

        Energy above base power may be negative, and the lower end of an interval.
        """
        named = {f"host_time_s of a {form}": held for form, held in self.host_time_s.items()}
        for name in ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j"):
            named[name] = getattr(self, name)
        for name, held in named.items():
            if held is None:
                continue
            if not all(map(math.isfinite, (held.median, held.mean, held.low or 0, held.high or 0))):
                return f"{name} is not finite"
            if name != "dynamic_energy_j" and min(held.median, held.mean) < 0:
                return f"{name} is negative"
        return None
