"""The one clock at which a model runs that would draw more than the board's power limit.

The limiter is slower than one pass, so all operators of a pass share one clock. It is found from
the limit alone: the share r of the highest clock at which base power and the operators' dynamic
energy together draw just what is allowed. How an operator's time and energy scale with the clock
is known where the limit lowered the clock during one of its own visits: t ∝ r^-a and D ∝ r^b. Of
the others, those that move their bytes nearly as fast as any are bound by memory (a = 0); the rest
scale as the known ones do at the median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from opdb.records import Cost

LOWEST_SHARE = 0.3
STEPS = 20

MIN_LOWERING = 0.04
"""A visit whose clock was lowered by less shows too little of the exponents."""

BEYOND_CACHES = 2**27
"""Operators that move at least this many bytes read memory: the fastest of them shows its rate."""

BANDWIDTH_SHARE = 0.5
"""An operator that moves its bytes at less than this share of the best rate is not memory-bound."""

USUAL_TIME_EXPONENT = 0.66
USUAL_ENERGY_EXPONENT = 1.07
"""Medians of 55 operators that an H200's limit slowed down (docs/measuring.md)."""


@dataclass(frozen=True)
class Scaling:
    """How one operator scales with the clock's share r: t ∝ r^-time and D ∝ r^energy exponent."""

    time_exponent: float
    energy_exponent: float

    def time(self, share: float) -> float:
        return math.pow(share, -self.time_exponent)

    def energy(self, share: float) -> float:
        return math.pow(share, self.energy_exponent)


def scalings(
    costs: Mapping[str, Cost], bytes_moved: Mapping[str, int] | None = None
) -> dict[str, Scaling]:
    """Return each cost's scaling, exponents kept within what is possible (0 to 1, 0 to 3).

    `bytes_moved` by configuration key shows which are bound by memory; without it, all that the
    limit did not slow down count as memory-bound.
    """
    seen = {key: found for key, cost in costs.items() if (found := _seen(cost)) is not None}
    slow = _below_bandwidth(costs, bytes_moved or {})
    usual = Scaling(
        _median((s.time_exponent for s in seen.values()), USUAL_TIME_EXPONENT),
        _median((s.energy_exponent for s in seen.values()), USUAL_ENERGY_EXPONENT),
    )
    memory_bound = Scaling(0.0, usual.energy_exponent)
    return {
        key: seen.get(key, usual if cost.limited or key in slow else memory_bound)
        for key, cost in costs.items()
    }


def _below_bandwidth(costs: Mapping[str, Cost], bytes_moved: Mapping[str, int]) -> set[str]:
    """Return the costs (keys) that move their bytes at less than a share of the best rate."""
    rates = {
        key: bytes_moved[key] / cost.time_s.mean
        for key, cost in costs.items()
        if cost.time_s is not None and cost.time_s.mean > 0 and bytes_moved.get(key)
    }
    long = [rate for key, rate in rates.items() if bytes_moved[key] >= BEYOND_CACHES]
    if not long:
        return set()
    return {key for key, rate in rates.items() if rate < BANDWIDTH_SHARE * max(long)}


def _median(values: Iterable[float], usual: float) -> float:
    found = list(values)
    return statistics.median(found) if found else usual


def _seen(cost: Cost) -> Scaling | None:
    """Return the exponents between a cost's two clocks; None where it saw one clock alone."""
    limited, dynamic = cost.limited, cost.dynamic_energy_j
    if limited is None or cost.time_s is None or dynamic is None:
        return None
    clocks = (limited.clock_hz or 0.0, cost.clock_hz or 0.0)
    times = (limited.time_s, cost.time_s.mean)
    energies = (limited.dynamic_energy_j or 0.0, dynamic.mean)
    if min(*clocks, *times, *energies) <= 0:
        return None  # not known, or less than its own noise
    lowering, longer, smaller = (low / full for low, full in (clocks, times, energies))
    if lowering > 1 - MIN_LOWERING:
        return None
    slower = math.log(longer) / -math.log(lowering)
    cheaper = math.log(smaller) / math.log(lowering)
    return Scaling(min(max(slower, 0.0), 1.0), min(max(cheaper, 0.0), 3.0))


@dataclass(frozen=True)
class Load:
    """Device time and dynamic energy of a pass at full clock, summed by how they scale with it.

    `parts` holds the device time (seconds) and the dynamic energy (joules) of each.
    """

    parts: Mapping[Scaling, tuple[float, float]]

    @classmethod
    def of(cls, scaled: Iterable[tuple[Scaling, float, float]]) -> Load:
        parts: dict[Scaling, tuple[float, float]] = {}
        for scaling, time_s, energy_j in scaled:
            time_before_s, energy_before_j = parts.get(scaling, (0.0, 0.0))
            parts[scaling] = time_before_s + time_s, energy_before_j + energy_j
        return cls(parts)

    def time_s(self, share: float) -> float:
        return sum(time_s * scaling.time(share) for scaling, (time_s, _) in self.parts.items())

    def energy_j(self, share: float) -> float:
        return sum(e_j * scaling.energy(share) for scaling, (_, e_j) in self.parts.items())


def clock_share(power_w: Callable[[float], float], limit_w: float) -> float:
    """Return the largest share of the highest clock whose `power_w(share)` keeps to the limit."""
    if power_w(1.0) <= limit_w:
        return 1.0
    low, high = LOWEST_SHARE, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if power_w(middle) > limit_w:
            high = middle
        else:
            low = middle
    return low
