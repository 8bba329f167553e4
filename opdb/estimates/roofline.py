"""The roofline that achieved utilisation is measured against, as the measured operators show it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from opdb.estimates.features import Features

REACHED = 0.99
"""The quantile of achieved rates that counts as what the device can do."""

USUAL = 0.75
"""The quantile of rates that counts as what kernels of one sort do when they are long enough."""

SHORTEST = 0.01
"""The quantile of times below which no operator that launches a kernel comes."""

MOST_APART = 0.7
"""The share of a convolution's time that its bias takes at most: some kernels add it themselves."""

BROADCASTING = ("add", "mul")
LEAST_BROADCAST = 2**20
"""Kinds that show how fast broadcasting kernels are, where they write so many elements."""

READ_AND_WRITTEN = 8
"""Bytes of an element in float32, where none shows it."""

HALVES = frozenset({"float16", "bfloat16"})
"""Dtypes that tensor cores multiply at one rate."""

EIGHT_BITS = frozenset({"float8_e4m3fn", "float8_e5m2"})
"""Dtypes that they multiply no slower than halves."""


@dataclass(frozen=True)
class Roofline:
    """The best rates of operators: FLOP/s by family and dtype, byte/s, and the shortest time.

    `broadcast_per_s` are the elements that a kernel writes in a second which broadcasts what it
    adds, in any dtype: such kernels wait for neither FLOPs nor bytes.

    The rates of a family and dtype are those of the units that it runs on (a convolution in fp32
    on tensor cores, a linear layer in fp32 not), whatever a data sheet calls them.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    shortest_s: float
    broadcast_per_s: float

    def slower(self, of: Features, time_s: float) -> float:
        """Return the logarithm of a measured time (seconds) over the roofline's.

        The kernel that adds a bias is set apart, though at most as `MOST_APART` of the time.
        """
        own_s = max(time_s - self.bias_s(of), (1 - MOST_APART) * time_s)
        return math.log(own_s / self.time_s(of))

    def seconds(self, of: Features, slower: float) -> float:
        """Return the time (seconds) that is so much slower, a logarithm, than the roofline's."""
        return self.time_s(of) * math.exp(slower) + self.bias_s(of)

    def bias_s(self, of: Features) -> float:
        """Return the time of the kernel that adds a convolution's bias; 0 where there is none."""
        return self.shortest_s + of.biased / self.broadcast_per_s if of.biased else 0.0

    def time_s(self, of: Features) -> float:
        """Return each step's shortest time plus the larger of FLOPs and bytes over their rates."""
        rate = self._rate(of)
        computing_s = of.flops / rate if rate else 0.0
        return self.shortest_s * of.steps + max(computing_s, of.moved_bytes / self.bytes_per_s)

    def _rate(self, of: Features) -> float | None:
        """Return the rate of a configuration's units; of some never measured, the nearest's.

        Halves have one rate, and so have all dtypes of what mostly moves memory: its few and short
        operators of some dtypes show none. Eight bits have at least that of halves, others the
        least in the family, else in that of forward passes.
        """
        if of.family.startswith("memory"):
            rates = [r for u, r in self.flops_per_s.items() if _family(u) == of.family]
            return max(rates, default=None)  # without one, bytes alone tell
        known = self.flops_per_s.get(_units(of.family, of.dtype))
        if of.dtype in HALVES or (known is None and of.dtype in EIGHT_BITS):
            known = self._of_halves(of.family)
        if known is not None:
            return known
        for family in (of.family, of.family.removesuffix(" backward")):
            if found := [r for u, r in self.flops_per_s.items() if r and _family(u) == family]:
                return min(found)
        return None

    def _of_halves(self, family: str) -> float | None:
        rates = [self.flops_per_s.get(_units(family, half)) for half in HALVES]
        return max((rate for rate in rates if rate is not None), default=None)

    def shown_by(self, seen: Iterable[Features]) -> Roofline:
        """Return it without rates of units that no operator showed, for memory held all back.

        So it is where all would wait for memory at the rate that stands in for units never
        measured, too: products of one row say nothing of how fast large ones are.
        """
        operators: dict[str, list[Features]] = defaultdict(list)
        for of in seen:
            if of.dtype in HALVES | EIGHT_BITS and not of.family.startswith("memory"):
                operators[_units(of.family, of.dtype)].append(of)
        kept = dict(self.flops_per_s)
        for units, found in operators.items():
            others = replace(self, flops_per_s={k: r for k, r in kept.items() if k != units})
            rate = others._of_halves(_family(units))
            if rate and all(o.flops / rate < o.moved_bytes / self.bytes_per_s for o in found):
                del kept[units]
        return replace(self, flops_per_s=kept)


def roofline(measured: Iterable[tuple[Features, float]]) -> Roofline:
    """Return the roofline under which measured times (seconds) lie; there must be one at least."""
    flops: dict[str, list[float]] = defaultdict(list)
    moved: list[float] = []
    times: list[float] = []
    broadcast: list[float] = []
    seen = list(measured)
    for of, time_s in seen:
        flops[_units(of.family, of.dtype)].append(of.flops / time_s)
        moved.append(of.moved_bytes / time_s)
        times.append(time_s)
        if of.kind in BROADCASTING and of.numbers["broadcast"]:
            written = 2 ** of.numbers["written"]
            if written >= LEAST_BROADCAST:
                broadcast.append(written / time_s)
    bytes_per_s = _quantile(moved, REACHED)
    found = Roofline(
        {units: _quantile(rates, REACHED) for units, rates in flops.items()},
        bytes_per_s,
        _quantile(times, SHORTEST),
        _quantile(broadcast, USUAL) if broadcast else bytes_per_s / READ_AND_WRITTEN,
    )
    return found.shown_by(of for of, _ in seen)


def _units(family: str, dtype: str) -> str:
    return f"{family} {dtype}"


def _family(units: str) -> str:
    return units.rpartition(" ")[0]


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile (share < 1), without interpolation: the value at that place in order."""
    ordered = sorted(values)
    return ordered[math.floor(share * len(ordered))]
