"""In which order to measure, so that every workload reaches its goal soonest.

What is asked is a covering problem: of configurations that cost GPU-seconds and serve several
workloads, find a cheap set that gives each workload its goal. A linear program, in which a part of
a configuration may be measured, finds the cheapest set; whatever it wants a part of is a candidate.
Of these, the one that brings most per GPU-second is taken each time. What it brings to a workload
counts the more the less that workload still lacks, so that models which are nearly there are
finished: divided by what is lacking, it would be the order of least mean waiting (Azar and Gamzu,
"Ranking with submodular valuations", 2011), not divided at all, that of the cheapest whole (Wolsey
1982). What turns out to be unnecessary is dropped in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]

EPSILON = 1e-9
"""Shares are sums of floating point numbers: a goal is reached within this."""

IMPATIENCE = 0.5
"""The power of what is lacking by which gains are divided: between the cheapest whole (0) and the
least mean waiting (1)."""


@dataclass(frozen=True)
class Demand:
    """What a workload needs: a goal for each of its quantities (time, or time and energy).

    `shares` holds, for each configuration that may be measured (key), its share of each quantity;
    `have` what is measured already.
    """

    name: str
    shares: Mapping[str, tuple[float, ...]]
    have: tuple[float, ...]
    goal: float


@dataclass(frozen=True)
class Step:
    """A configuration (key) to measure: what it brings per GPU-second, and what it costs."""

    key: str
    gain: float
    seconds: float


def rank(
    demands: Sequence[Demand], seconds: Mapping[str, float], first: Iterable[str] = ()
) -> list[Step]:
    """Return the configurations to measure, in order, until every demand is met or none is left.

    `seconds` is what each costs; `first` those that come first in any case, and are never dropped.
    """
    pinned = [key for key in dict.fromkeys(first) if key in seconds]
    greedy = _Greedy(demands, seconds, cheapest(demands, seconds))
    steps = [Step(key, greedy.gain(key), seconds[key]) for key in pinned]
    for key in pinned:
        greedy.take(key)
    while (found := greedy.next()) is not None:
        steps.append(Step(found, greedy.gain(found), seconds[found]))
        greedy.take(found)
    kept = _needed(demands, steps, set(pinned))
    return [step for step in steps if step.key in kept]


def short_of(demand: Demand, have: Sequence[float]) -> tuple[float, ...]:
    return tuple(lack if (lack := demand.goal - part) > EPSILON else 0.0 for part in have)


def cheapest(demands: Sequence[Demand], seconds: Mapping[str, float]) -> list[str]:
    """Return the configurations (keys) of which the cheapest cover, parts allowed, wants any.

    All of them where the linear program finds no end.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    place = {key: number for number, key in enumerate(seconds)}
    rows, bounds = _constraints(demands, place)
    if not bounds:
        return []
    numbers, columns, shares = (np.array(each) for each in zip(*rows, strict=True))
    matrix = csr_array((shares, (numbers, columns)), shape=(len(bounds), len(place)))
    prices = np.array(list(seconds.values()))
    found = linprog(prices, A_ub=-matrix, b_ub=-np.array(bounds), bounds=(0, 1), method="highs")
    if found.x is None:
        return list(seconds)
    return [key for key, part in zip(seconds, found.x, strict=True) if part > EPSILON]


def _constraints(
    demands: Sequence[Demand], place: Mapping[str, int]
) -> tuple[list[tuple[int, int, float]], list[float]]:
    """Return what each quantity of each demand takes: (row, column, share), and the least sum.

    What cannot be reached is asked for as far as it can.
    """
    rows: list[tuple[int, int, float]] = []
    bounds: list[float] = []
    for demand in demands:
        for quantity, lack in enumerate(short_of(demand, demand.have)):
            its = [(place[k], s[quantity]) for k, s in demand.shares.items() if k in place]
            whole = sum(share for _, share in its)
            if lack > 0 and whole > 0:
                rows += [(len(bounds), column, share) for column, share in its if share > 0]
                bounds.append(min(lack, whole * (1 - EPSILON)))
    return rows, bounds


class _Greedy:
    """The gain of every configuration, kept up as others are taken.

    Candidates go before all else. A demand's shares are a matrix, a row for each configuration and
    a column for each quantity.
    """

    def __init__(
        self, demands: Sequence[Demand], seconds: Mapping[str, float], candidates: Iterable[str]
    ) -> None:
        self._keys = list(seconds)
        self._place = {key: number for number, key in enumerate(self._keys)}
        self._seconds = np.array([seconds[key] for key in self._keys])
        self._gains = np.zeros(len(self._keys))
        self._left = np.ones(len(self._keys), dtype=bool)
        self._open = np.zeros(len(self._keys), dtype=bool)
        self._open[[self._place[key] for key in candidates]] = True
        self._of: dict[str, list[tuple[_Lacking, int]]] = defaultdict(list)
        for demand in demands:
            useful = [k for k, shares in demand.shares.items() if k in self._place and any(shares)]
            if not useful:
                continue
            places = np.array([self._place[key] for key in useful])
            shares = np.array([demand.shares[key] for key in useful])
            lacking = _Lacking(places, shares, np.array(short_of(demand, demand.have)))
            self._gains[places] += lacking.worth
            for row, key in enumerate(useful):
                self._of[key].append((lacking, row))

    def gain(self, key: str) -> float:
        place = self._place[key]
        return max(0.0, float(self._gains[place] / self._seconds[place]))

    def next(self) -> str | None:
        """Return the configuration that brings most; None where none brings anything."""
        if not self._keys:
            return None
        values = np.where(self._left, self._gains / self._seconds, 0.0)
        for some in (np.where(self._open, values, 0.0), values):
            best = int(np.argmax(some))
            if some[best] > EPSILON:
                return self._keys[best]
        return None

    def take(self, key: str) -> None:
        self._left[self._place[key]] = False
        for lacking, row in self._of[key]:
            if lacking.lacks.any():
                self._gains[lacking.places] += lacking.without(row)


class _Lacking:
    """What a demand lacks of each quantity, and what each of its configurations brings of that."""

    def __init__(self, places: Numbers, shares: Numbers, lacks: Numbers) -> None:
        self.places, self._shares, self.lacks = places, shares, lacks
        self.worth = self._worth()

    def without(self, row: int) -> Numbers:
        """Take a configuration's shares off what is lacking; return by how much worths change."""
        rest = self.lacks - self._shares[row]
        self.lacks = np.where(rest > EPSILON, rest, 0.0)
        self._shares[row] = 0.0
        before, self.worth = self.worth, self._worth()
        return self.worth - before

    def _worth(self) -> Numbers:
        short = self.lacks > 0
        lacks = self.lacks[short]
        parts = np.minimum(self._shares[:, short], lacks) / lacks**IMPATIENCE
        worth: Numbers = parts.sum(axis=1)
        return worth


def _needed(demands: Sequence[Demand], steps: Sequence[Step], pinned: set[str]) -> set[str]:
    """Return the steps (keys) without which a demand would be missed, looked at from the end.

    A demand that all steps together do not meet needs each of its own.
    """
    taken = {step.key for step in steps}
    have = [
        [
            part + sum(s[q] for k, s in d.shares.items() if k in taken)
            for q, part in enumerate(d.have)
        ]
        for d in demands
    ]
    users: dict[str, list[int]] = defaultdict(list)
    for number, demand in enumerate(demands):
        for key in demand.shares.keys() & taken:
            users[key].append(number)

    def spare(key: str) -> bool:
        return all(_spared(demands[n], have[n], demands[n].shares[key]) for n in users[key])

    for step in reversed(steps):
        if step.key not in pinned and spare(step.key):
            taken.discard(step.key)
            for n in users[step.key]:
                have[n] = [h - s for h, s in zip(have[n], demands[n].shares[step.key], strict=True)]
    return taken


def _spared(demand: Demand, have: Sequence[float], shares: Sequence[float]) -> bool:
    return all(s == 0 or h - s >= demand.goal - EPSILON for h, s in zip(have, shares, strict=True))
