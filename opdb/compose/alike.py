"""A rough size for what was never measured: how its nearest measured kin use the device.

Kin are configurations of the same kind; near is what is alike in operations, bytes, weights,
channels, window, groups, layout and stride. The time is a rough roofline times the ratio of time to
that roofline that the nearest show. The farther they are, the more it may be off: its doubt. Where
none of its kind was measured, the ratio is the median of all others.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from opdb.errors import UnknownNameError
from opdb.kinds import get_kind
from opdb.records import Configuration, Cost, Json

NEAREST = 3
DOUBT = 0.25
"""Doubt grows by this share, as a logarithm, for each unit of distance to the nearest."""

FARTHEST = 1.5
"""Beyond this distance doubt grows no more; it is also that of a kind of which nothing is known."""

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


@dataclass(frozen=True)
class Size:
    """Time (seconds) and dynamic energy (joules) of one call.

    `doubt` is the factor by which both may be larger: 1 where they were measured.
    """

    time_s: float
    dynamic_energy_j: float
    doubt: float = 1.0


@dataclass(frozen=True)
class _Seen:
    """A measured call: `ratio` is the logarithm of its time to its roofline."""

    place: Coordinates
    ratio: float
    dynamic_w: float | None


class Kin:
    """What the measured configurations say of others."""

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
        doubt = math.exp(DOUBT * min(near[0][0] if near else FARTHEST, FARTHEST))
        return Size(time_s, time_s * self._watts(near), doubt)

    def dynamic_w(self, configuration: Configuration) -> float:
        """Return the rough power above base power of a call that was timed."""
        place = place_of(configuration)
        return self._watts([] if place is None else self._nearest(configuration.title, place))

    def _watts(self, near: Sequence[tuple[float, _Seen]]) -> float:
        known = [(seen.dynamic_w, d) for d, seen in near if seen.dynamic_w is not None]
        return _mean(known) if known else self._usual_dynamic_w

    def _nearest(self, kind: str, place: Coordinates) -> list[tuple[float, _Seen]]:
        """Return the nearest of a kind, each with its distance."""

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
    """Return where a configuration stands; None where a call of it launches nothing.

    Raises:
        UnknownNameError: the kind is not one of this version.
    """
    kind = get_kind(configuration.kind)
    if not kind.launches(configuration):
        return None
    tensors = [t for t in configuration.inputs.values() if isinstance(t, dict) and "dtype" in t]
    first = tensors[0] if tensors else {"shape": [], "dtype": "float32"}
    dtype, shape, layout = str(first["dtype"]), list(first["shape"]), first.get("layout")
    channels = int(shape[1]) if len(shape) > 1 else 1
    flops, moved = kind.flops(configuration), kind.bytes_moved(configuration)
    axes = (
        math.log(max(flops, 1)),
        math.log(max(moved, 1)),
        0.5 * math.log(max(kind.weight_bytes(configuration), 1)),
        0.5 * math.log(max(channels, 1)),
        0.7 * math.log(_window(configuration)),
        1.5 * (configuration.parameters.get("groups", 1) != 1),
        0.0 if not layout else 0.5 if isinstance(layout, str) else 1.0,
        0.5 * ("stride" in configuration.parameters),
    )
    rate = _FLOPS_PER_S.get(dtype, _USUAL_FLOPS_PER_S)
    return Coordinates(axes, dtype, max(flops / rate, moved / _BYTES_PER_S) + _LAUNCH_S)


def _window(configuration: Configuration) -> int:
    """Return how many positions a convolution's weight spans; 1 for what has none."""
    weight: Json = configuration.inputs.get("weight")
    shape = weight.get("shape", []) if isinstance(weight, dict) else []
    return max(math.prod(int(size) for size in shape[2:]), 1)


def _seen(configuration: Configuration, cost: Cost | None) -> _Seen | None:
    """Return what a cost shows; None for one without a time, and for a call without work."""
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
