"""Operators of a database by the kernels that they launched, for work that no call explains."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opdb.records import Cost, Quantity

MOST_APART = 2.0
"""Kernels of one name whose times differ by a larger factor are not compared."""

NEAREST = 3
"""Configurations that a match rests on: those whose time is nearest."""

Kernels = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Match:
    """The configurations (keys) that launch the same kernels, and their energy for a time.

    `dynamic_j` is the mean of theirs at their dynamic power; its interval spans all of theirs.
    """

    configurations: tuple[str, ...]
    dynamic_j: Quantity


class KernelIndex:
    """The configurations of a database that have a cost, by kernel names and their counts."""

    def __init__(self, kernels: Mapping[str, Mapping[str, int]], costs: Mapping[str, Cost]) -> None:
        self._by: dict[Kernels, list[tuple[str, float, Quantity]]] = defaultdict(list)
        for key, counts in kernels.items():
            cost = costs.get(key)
            if not counts or cost is None or cost.time_s is None or cost.dynamic_energy_j is None:
                continue
            if cost.time_s.mean > 0:
                entry = (key, cost.time_s.mean, cost.dynamic_energy_j)
                self._by[frozenset(counts.items())].append(entry)

    def find(self, names: Collection[str], time_s: float) -> Match | None:
        """Return what launches exactly these kernels in about this time (s); None where nothing."""
        if time_s <= 0:
            return None
        found = self._by.get(frozenset(Counter(names).items()), [])
        near = [(abs(math.log(own_s / time_s)), key, own_s, j) for key, own_s, j in found]
        near = sorted(each for each in near if each[0] <= math.log(MOST_APART))[:NEAREST]
        if not near:
            return None
        scaled = [(time_s / own_s, j) for _, _, own_s, j in near]
        mean = math.fsum(by * j.mean for by, j in scaled) / len(scaled)
        lows = [by * j.low for by, j in scaled if j.low is not None]
        highs = [by * j.high for by, j in scaled if j.high is not None]
        whole = len(lows) == len(highs) == len(scaled)
        low, high = (min(lows), max(highs)) if whole else (None, None)
        keys = tuple(key for _, key, _, _ in near)
        return Match(keys, Quantity(mean, mean, low, high, len(scaled)))
