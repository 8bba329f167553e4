"""The roofline that achieved utilisation is measured against, as the measured operators show it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opdb.estimates.features import Features

REACHED = 0.99
"""The quantile of achieved rates that counts as what the device can do."""

SHORTEST = 0.01
"""The quantile of times below which no operator that launches a kernel comes."""


HALVES = frozenset({"float16", "bfloat16"})
"""Dtypes that tensor cores multiply at one rate."""


@dataclass(frozen=True)
class Roofline:
    """The best rates of operators: FLOP/s by family and dtype, byte/s, and the shortest time.

    The rates of a family and dtype are those of the units that it runs on (a convolution in fp32
    on tensor cores, a linear layer in fp32 not), whatever a data sheet calls them.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    shortest_s: float

    def time_s(self, of: Features) -> float:
        """Return each step's shortest time plus the larger of FLOPs and bytes over their rates."""
        rate = self._rate(of)
        computing_s = of.flops / rate if rate else 0.0
        return self.shortest_s * of.steps + max(computing_s, of.moved_bytes / self.bytes_per_s)

    def _rate(self, of: Features) -> float | None:
        """Return the rate of a configuration's units; of some never measured, the nearest's.

        That is the other half's, else the least in the family, else in that of forward passes.
        """
        halves = HALVES if of.dtype in HALVES else ()
        for dtype in (of.dtype, *sorted(halves)):
            if (rate := self.flops_per_s.get(f"{of.family} {dtype}")) is not None:
                return rate
        if of.family.startswith("memory"):
            return None  # bytes alone tell
        for family in (of.family, of.family.removesuffix(" backward")):
            if found := [r for u, r in self.flops_per_s.items() if r and _family(u) == family]:
                return min(found)
        return None


def roofline(measured: Iterable[tuple[Features, float]]) -> Roofline:
    """Return the roofline under which measured times (seconds) lie; there must be one at least."""
    flops: dict[str, list[float]] = defaultdict(list)
    moved: list[float] = []
    times: list[float] = []
    for of, time_s in measured:
        flops[_units(of)].append(of.flops / time_s)
        moved.append(of.moved_bytes / time_s)
        times.append(time_s)
    return Roofline(
        {units: _quantile(rates, REACHED) for units, rates in flops.items()},
        _quantile(moved, REACHED),
        _quantile(times, SHORTEST),
    )


def _units(of: Features) -> str:
    return f"{of.family} {of.dtype}"


def _family(units: str) -> str:
    return units.rpartition(" ")[0]


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile (share < 1), without interpolation: the value at that place in order."""
    ordered = sorted(values)
    return ordered[math.floor(share * len(ordered))]
