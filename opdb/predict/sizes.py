"""How much time and energy each configuration takes: as measured, else estimated, else by its kin.

`sizes_of` is the one place that sizes what was never measured. No predicted time or energy rests on
it: it decides what is measured first, and what share of a workload is still missing.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from opdb.errors import UnknownNameError
from opdb.kinds import get_kind
from opdb.records import Configuration, Cost, Json

# A rough size for what was never measured: how its nearest measured kin use the device.
#
# Kin are configurations of the same kind; near is what is alike in operations, bytes, weights,
# channels, window, groups, layout and stride. The time is a rough roofline times the ratio of time
# to that roofline that the nearest show. Where none of its kind was measured, the ratio is the
# median of all others.


NEAREST = 3
_OTHER_DTYPE = 2.0
_FLOPS_PER_S = {"float16": 6e14, "bfloat16": 6e14}
_USUAL_FLOPS_PER_S = 1e14
_BYTES_PER_S = 4e12
_LAUNCH_S = 2e-6
_USUAL_DYNAMIC_W = 100.0
"""A rough device: only ratios to it count, and, where nothing is measured, ratios among them."""


@dataclass(frozen=True)
class Coordinates:
    """Where a configuration lies among others of its kind; `roofline_s` is its rough time."""

    axes: tuple[float, ...]
    dtype: str
    roofline_s: float

    def distance(self, other: Coordinates) -> float:
        """Return how far apart two are: differences of logarithms of sizes, added up."""
        apart = sum(abs(a - b) for a, b in zip(self.axes, other.axes, strict=True))
        return apart + _OTHER_DTYPE * (self.dtype != other.dtype)


class Size(NamedTuple):
    """Time (seconds) and dynamic energy (joules) of one call."""

    time_s: float
    dynamic_energy_j: float


@dataclass(frozen=True)
class _Seen:
    """A measured call: `ratio` is the logarithm of its time to its roofline."""

    place: Coordinates
    ratio: float
    dynamic_w: float | None


class Kin:
    def __init__(self, measured: Iterable[Configuration], costs: Mapping[str, Cost]) -> None:
        self._of_kind: dict[str, list[_Seen]] = defaultdict(list)  # each pass apart
        for configuration in measured:
            seen = _seen(configuration, costs.get(configuration.key))
            if seen is not None:
                self._of_kind[configuration.title].append(seen)
        everything = [seen for some in self._of_kind.values() for seen in some]
        watts = [seen.dynamic_w for seen in everything if seen.dynamic_w]
        self._usual_dynamic_w = statistics.median(watts) if watts else _USUAL_DYNAMIC_W
        self._usual_ratio = statistics.median(s.ratio for s in everything) if everything else 0.0

    def size(self, configuration: Configuration) -> Size | None:
        """Return the rough size of one call; a call that launches nothing takes no time.

        None for a kind of which this version knows no operations and bytes.
        """
        try:
            place = place_of(configuration)
        except (UnknownNameError, ValueError, KeyError, TypeError, IndexError, ArithmeticError):
            return None
        if place is None:
            return Size(0.0, 0.0)
        near = self._nearest(configuration.title, place)
        ratio = _mean((seen.ratio, d) for d, seen in near) if near else self._usual_ratio
        time_s = place.roofline_s * math.exp(ratio)
        return Size(time_s, time_s * self._watts(near))

    def dynamic_w(self, configuration: Configuration) -> float:
        place = place_of(configuration)
        return self._watts([] if place is None else self._nearest(configuration.title, place))

    def _watts(self, near: Sequence[tuple[float, _Seen]]) -> float:
        known = [(seen.dynamic_w, d) for d, seen in near if seen.dynamic_w is not None]
        return _mean(known) if known else self._usual_dynamic_w

    def _nearest(self, kind: str, place: Coordinates) -> list[tuple[float, _Seen]]:
        def by_operations(seen: _Seen) -> float:
            return abs(seen.place.axes[0] - place.axes[0])

        near: list[tuple[float, _Seen]] = []
        for seen in sorted(self._of_kind.get(kind, ()), key=by_operations):
            if len(near) == NEAREST and by_operations(seen) > near[-1][0]:
                break  # so are all that follow, and operations are but one part of a distance
            near.append((place.distance(seen.place), seen))
            near = sorted(near, key=lambda each: each[0])[:NEAREST]
        return near


@cache
def place_of(configuration: Configuration) -> Coordinates | None:
    """Return where a configuration stands; None where a call of it launches nothing."""
    kind = get_kind(configuration.kind)
    if not kind.launches(configuration):
        return None
    tensors = [t for t in configuration.inputs.values() if isinstance(t, dict) and "dtype" in t]
    first = tensors[0] if tensors else {"shape": [], "dtype": "float32"}
    dtype, shape, layout = str(first["dtype"]), list(first["shape"]), first.get("layout")
    channels = int(shape[1]) if len(shape) > 1 else 1
    flops, (moved, weights) = kind.flops(configuration), kind.traffic(configuration)
    axes = (
        math.log(max(flops, 1)),
        math.log(max(moved, 1)),
        0.5 * math.log(max(weights, 1)),
        0.5 * math.log(max(channels, 1)),
        0.7 * math.log(_window(configuration)),
        1.5 * (configuration.parameters.get("groups", 1) != 1),
        0.0 if not layout else 0.5 if isinstance(layout, str) else 1.0,
        0.5 * ("stride" in configuration.parameters),
    )
    rate = _FLOPS_PER_S.get(dtype, _USUAL_FLOPS_PER_S)
    return Coordinates(axes, dtype, max(flops / rate, moved / _BYTES_PER_S) + _LAUNCH_S)


def _window(configuration: Configuration) -> int:
    weight: Json = configuration.inputs.get("weight")
    shape = weight.get("shape", []) if isinstance(weight, dict) else []
    return max(math.prod(int(size) for size in shape[2:]), 1)


def _seen(configuration: Configuration, cost: Cost | None) -> _Seen | None:
    if cost is None or cost.time_s is None or cost.time_s.mean <= 0:
        return None
    place = place_of(configuration)
    if place is None:
        return None
    time_s, energy = cost.time_s.mean, cost.dynamic_energy_j
    # Next to base power a short operator may seem to give energy back: it takes none.
    watts = None if energy is None else max(0.0, energy.mean) / time_s
    return _Seen(place, math.log(time_s / place.roofline_s), watts)


def _mean(values: Iterable[tuple[float, float]]) -> float:
    """Return the mean of values, each with a distance: the nearer, the more it weighs."""
    weighted = [(value, 1 / (distance + 0.1) ** 2) for value, distance in values]
    return sum(v * w for v, w in weighted) / sum(w for _, w in weighted)


# `sizes_of` is the one place that sizes what was never measured. No predicted time or energy rests
# on it: it decides what is measured first, and what share of a workload is still missing.


SharesByKey = dict[str, tuple[float, float]]
"""Shares of a workload's time and energy, by configuration key."""


def sizes_of(
    configurations: Iterable[Configuration],
    costs: Mapping[str, Cost],
    estimated: Mapping[str, Cost] = MappingProxyType({}),
) -> dict[str, Size | None]:
    """Return each configuration's size by key: as measured, else estimated, else by its kin.

    None where nothing can be said: a kind that this version lacks.
    """
    wanted = {c.key: c for c in configurations}
    timed = {k: cost for k in wanted if (cost := costs.get(k)) and cost.time_s is not None}
    known = {**estimated, **timed}
    whole = all(key in known and known[key].dynamic_energy_j is not None for key in wanted)
    kin = Kin([] if whole else wanted.values(), timed)
    sizes: dict[str, Size | None] = {}
    for key, configuration in wanted.items():
        if key in known:
            sizes[key] = _size_of(configuration, known[key], kin)
        else:
            sizes[key] = kin.size(configuration)
    return sizes


def _size_of(configuration: Configuration, cost: Cost, kin: Kin) -> Size:
    assert cost.time_s is not None
    time_s, energy = cost.time_s.mean, cost.dynamic_energy_j
    if energy is None:
        return Size(time_s, time_s * kin.dynamic_w(configuration))
    # Next to base power a short operator may seem to give energy back: it takes none.
    return Size(time_s, max(0.0, energy.mean))


def shares_of(
    counts: Mapping[str, int], sizes: Mapping[str, Size | None], base_w: float
) -> SharesByKey | None:
    """Return each configuration's shares of a workload's device time and energy.

    `counts` says how often the workload calls each (key). None where one has no size.
    `base_w` is the board's base power in watts.
    """
    amounts = _amounts_of(counts, sizes, base_w)
    if amounts is None:
        return None
    whole_s, whole_j = _totals(amounts)
    return {key: (_part(s, whole_s), _part(j, whole_j)) for key, (s, j) in amounts.items()}


def _amounts_of(
    counts: Mapping[str, int], sizes: Mapping[str, Size | None], base_w: float
) -> dict[str, tuple[float, float]] | None:
    found = {}
    for key, count in counts.items():
        size = sizes[key]
        if size is None:
            return None
        energy_j = size.dynamic_energy_j + base_w * size.time_s
        found[key] = (count * size.time_s, count * energy_j)
    return found


def _totals(amounts: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    times_s, energies_j = zip(*amounts.values(), strict=True) if amounts else ((), ())
    return math.fsum(times_s), math.fsum(energies_j)


def _part(value: float, whole: float) -> float:
    return value / whole if whole > 0 else 0.0
