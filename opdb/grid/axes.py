"""Axes of a grid: what each name may be, and the points that are made of them.

A level of an axis is a plain value, or a reference to another axis: `{of: kernel_size,
divided_by: 2}`. Points come in the order of the file, the last axis first; or, where a sample is
asked for, spread evenly over all axes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import count as counting
from itertools import islice, product
from math import ceil, floor, log2, prod

from opdb.records import Json

LONGEST = 10_000
"""Values of one range, at most."""

MOST_DRAWS = 100_000
"""Points drawn for one sample, at most; many fall on points that were drawn before."""


@dataclass(frozen=True)
class Reference:
    """The value of another axis, times a number, divided by one and rounded down."""

    name: str
    times: int = 1
    divided_by: int = 1

    def of(self, value: Json) -> Json:
        """Return what the reference is where the axis has a value; of a list, each entry.

        Raises:
            ValueError: the value is no whole number.
        """
        if isinstance(value, list):
            return [self.of(entry) for entry in value]
        if self.times == self.divided_by == 1:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{self.name} is {value!r}, not a whole number")
        return value * self.times // self.divided_by


Axes = Mapping[str, Sequence[Json | Reference]]


def spread_range(
    low: float, high: float, *, step: float | None, factor: float | None
) -> list[Json]:
    """Return the numbers from `low` to `high`, both included where a step or factor meets them.

    They are whole where `low` and `high` (and the step) are.

    Raises:
        ValueError: the range is empty, does not move, or has too many values.
    """
    if low > high:
        raise ValueError("from lies above to")
    if factor is not None and (factor <= 1 or low <= 0):
        raise ValueError("a factor is above 1, and from above 0")
    if step is not None and step <= 0:
        raise ValueError("a step is above 0")
    whole = isinstance(low, int) and isinstance(high, int) and not isinstance(step, float)
    found: list[Json] = []
    for number in range(LONGEST + 1):
        value = low + number * step if step is not None else low * (factor or 1) ** number
        value = round(value) if whole else value
        if value > high:
            return found
        if value not in found[-1:]:
            found.append(value)
    raise ValueError(f"more than {LONGEST} values")


def reference_order(axes: Axes) -> list[str]:
    """Return the axes' names, each after those that its levels refer to.

    Raises:
        ValueError: a reference names no axis, or references lead in a circle.
    """
    graph: dict[str, set[str]] = {}
    for name, levels in axes.items():
        graph[name] = {level.name for level in levels if isinstance(level, Reference)}
        for other in graph[name]:
            if other not in axes:
                raise ValueError(f"{name}: of {other!r}: there is no such name")
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ValueError("references in a circle: " + " of ".join(error.args[1])) from error


def count(axes: Axes) -> int:
    """Return how many points the axes have."""
    return prod(len(levels) for levels in axes.values())


def points(axes: Axes) -> Iterator[tuple[int, ...]]:
    """Yield every point: the index of each axis's level, the last axis moving first."""
    return product(*(range(len(levels)) for levels in axes.values()))


def spread_points(axes: Axes, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield distinct points, any first few of them spread evenly over each axis and all together.

    They are Halton's, each digit permuted at random, and equal on every machine. Ends when no new
    ones are met.
    """
    sizes = [len(levels) for levels in axes.values()]
    generator = random.Random(seed)
    digits = [_Digits(prime, generator) for prime in _primes(len(sizes))]
    seen: set[tuple[int, ...]] = set()
    for number in range(MOST_DRAWS):
        drawn = tuple(
            min(floor(place.of(number) * size), size - 1)
            for place, size in zip(digits, sizes, strict=True)
        )
        if drawn not in seen:
            seen.add(drawn)
            yield drawn
        if len(seen) == prod(sizes):
            return


class _Digits:
    """One dimension of Halton's sequence: a number's digits behind the point, in reverse."""

    def __init__(self, base: int, generator: random.Random) -> None:
        self._base = base
        length = ceil(32 / log2(base))
        self._permutations = [generator.sample(range(base), base) for _ in range(length)]

    def of(self, number: int) -> float:
        """Return where the number lies in [0, 1)."""
        place, found = 1.0, 0.0
        for permutation in self._permutations:
            place /= self._base
            number, digit = divmod(number, self._base)
            found += permutation[digit] * place
        return found


def _primes(number: int) -> list[int]:
    primes = (n for n in counting(2) if all(n % divisor for divisor in range(2, n)))
    return list(islice(primes, number))


def resolved(axes: Axes, order: Sequence[str], point: Sequence[int]) -> dict[str, Json]:
    """Return the value of each name at a point, references followed, in the axes' order.

    Raises:
        ValueError: a reference is to something that is no whole number.
    """
    levels = {name: axes[name][index] for name, index in zip(axes, point, strict=True)}
    values: dict[str, Json] = {}
    for name in order:
        level = levels[name]
        values[name] = level.of(values[level.name]) if isinstance(level, Reference) else level
    return {name: values[name] for name in axes}
