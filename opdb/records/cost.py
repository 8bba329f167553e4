"""Quantities derived from visits: the cost of one call on one board."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from opdb.records.words import Form

UNKNOWN = 50.0
"""An interval that reaches so far (logarithms) says nothing; floats would not hold farther ends."""


def positive_interval(value: float, below: float, above: float) -> tuple[float, float]:
    """Return the ends of a positive value's interval, these logarithms below and above it."""
    return value * math.exp(-min(below, UNKNOWN)), value * math.exp(min(above, UNKNOWN))


OTHER_DTYPE = "other dtype"
OTHER_KINDS = "other kinds"
ROOFLINE_ALONE = "roofline alone"
"""Flags of an estimate that rests on no measured operator of its kind and dtype: on those of its
kind in another dtype, on those of other kinds of its family, or on a roofline alone."""

BETWEEN = "between"
"""The flag of an estimate that lies on a line through measured costs of the same call at other
sizes."""


@dataclass(frozen=True)
class Quantity:
    """An estimated quantity: median, 3σ-mean, and the 95 % confidence interval of the mean.

    The interval is symmetric on logarithms, so that it stays above 0; only that of a difference
    which may lie below 0 (dynamic energy) is mean ± half width. `low` and `high` are None where
    one visit stands alone and nothing says how visits spread.
    """

    median: float
    mean: float
    low: float | None
    high: float | None
    count: int

    @classmethod
    def around(
        cls,
        median: float,
        mean: float,
        half_width: float | None,
        count: int,
        *,
        positive: bool = True,
    ) -> Quantity:
        """Return a quantity whose interval reaches a half width (None: there is none) each way.

        On logarithms, as mean · exp(± half width / mean); as mean ± half width where the quantity
        may be 0 or less (not `positive`) and the interval reaches 0.
        """
        if half_width is None:
            return cls(median, mean, None, None, count)
        if mean <= 0 or not (positive or half_width < mean):
            return cls(median, mean, mean - half_width, mean + half_width, count)
        low, high = positive_interval(mean, half_width / mean, half_width / mean)
        return cls(median, mean, low, high, count)

    @property
    def value(self) -> float:
        """The mean."""
        return self.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, as given to `around`; None where there is none."""
        if self.low is None or self.high is None:
            return None
        if self.low > 0:
            return self.mean * math.log(self.high / self.low) / 2
        return (self.high - self.low) / 2

    def moved(self, by: float) -> Quantity:
        """Return it with another mean and the same half width; moved by 0 itself, to the bit."""
        if not by:
            return self
        positive = self.low is not None and self.low > 0
        return Quantity.around(
            self.median + by, self.mean + by, self.half_width, self.count, positive=positive
        )


def mean_of(quantity: Quantity | None) -> float:
    """Return a quantity's mean; 0 where there is none, in a sum of what is known."""
    return quantity.mean if quantity else 0.0


@dataclass(frozen=True)
class OperatingPoint:
    """One call in another state than usual: what its visits there saw, on average.

    At a lowered clock (visits at the power limit), or with weights that stayed in the L2.
    """

    clock_hz: float | None
    time_s: float
    dynamic_energy_j: float | None

    def scaled(self, time: float, energy: float) -> OperatingPoint:
        """Return it with its time and its dynamic energy so many times as large."""
        energy_j = None if self.dynamic_energy_j is None else self.dynamic_energy_j * energy
        return replace(self, time_s=self.time_s * time, dynamic_energy_j=energy_j)


@dataclass(frozen=True)
class AfterOthers:
    """What a call takes longer where other kernels have run since its own were launched last (s).

    `code_s` is that of code that is no longer held: a difference of two times, which may lie a
    little below 0. `stream_s` comes on top where more has gone through the L2 since than it holds;
    it is the board's usual one for each different kernel (None: the board has none).
    """

    code_s: float
    stream_s: float | None


@dataclass(frozen=True)
class Cost:
    """The cost of one call of a configuration on one board, derived from its visits.

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
    after_others: AfterOthers | None = None
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


@dataclass(frozen=True)
class RunRatio:
    """What a run of a whole model shows of the sum of its operators: predicted / measured.

    `kernel_s` is the mean time of its kernels (seconds). Where it `waits` for its host, the energy
    is that which the sum would have, had the pass taken the measured time; None: not known.
    """

    time: float
    energy: float | None
    kernel_s: float | None
    waits: bool


RunRatios: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, RunRatio | None]]]"
"""By mode, board (UUID) and workload (key); None where a part of the sum has no cost."""
