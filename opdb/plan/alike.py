"""An estimate for what was never measured: how its nearest measured kin use the device.

Kin are configurations of the same kind; near is what is alike in operations, bytes, weights,
channels, window, groups, layout and stride. An estimate is a rough roofline times the ratio of time
to that roofline that the nearest show. The farther they are, the more it may be off: its doubt.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opdb.errors import UnknownNameError
from opdb.kinds import get_kind
from opdb.records import Configuration, Cost, Json

Numbers = NDArray[Any]

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


@dataclass(frozen=True)
class Estimate:
    """Time (seconds), watts above base power, and the factor by which the time may be longer."""

    time_s: float
    dynamic_w: float
    doubt: float


@dataclass(frozen=True)
class _Seen:
    place: Coordinates
    ratio: float
    dynamic_w: float | None


class Kin:
    """What the measured configurations say of others."""

    def __init__(self, measured: Iterable[Configuration], costs: Mapping[str, Cost]) -> None:
        self._of_kind: dict[str, list[_Seen]] = defaultdict(list)  # each pass apart
        for configuration in measured:
            cost, place = costs[configuration.key], place_of(configuration)
            if place is not None and cost.time_s is not None and cost.time_s.mean > 0:
                self._of_kind[configuration.title].append(_seen(place, cost))
        self._axes: dict[str, tuple[Numbers, Numbers]] = {}
        everything = [seen for some in self._of_kind.values() for seen in some]
        watts = [seen.dynamic_w for seen in everything if seen.dynamic_w is not None]
        self._ratio = statistics.median(s.ratio for s in everything) if everything else 0.0
        self.usual_dynamic_w = statistics.median(watts) if watts else _USUAL_DYNAMIC_W

    def estimate(self, configuration: Configuration) -> Estimate | None:
        """Return an estimate; None for a kind of which this version knows no operations and bytes.

        A call that launches nothing takes no time.
        """
        try:
            place = place_of(configuration)
        except (UnknownNameError, ValueError, KeyError, TypeError, IndexError, ArithmeticError):
            return None
        if place is None:
            return Estimate(0.0, 0.0, 1.0)
        near = self._nearest(configuration.title, place)
        if not near:
            time_s = place.roofline_s * math.exp(self._ratio)
            return Estimate(time_s, self.usual_dynamic_w, math.exp(DOUBT * FARTHEST))
        weights = [1 / (distance + 0.1) ** 2 for distance, _ in near]
        ratio = _mean([seen.ratio for _, seen in near], weights)
        known = [
            (seen.dynamic_w, weight)
            for (_, seen), weight in zip(near, weights, strict=True)
            if seen.dynamic_w is not None
        ]
        return Estimate(
            time_s=place.roofline_s * math.exp(ratio),
            dynamic_w=_mean(*zip(*known, strict=True)) if known else self.usual_dynamic_w,
            doubt=math.exp(DOUBT * min(near[0][0], FARTHEST)),
        )

    def _nearest(self, kind: str, place: Coordinates) -> list[tuple[float, _Seen]]:
        """Return the nearest of a kind, each with its distance: logarithms of sizes, added up."""
        kin = self._of_kind.get(kind)
        if not kin:
            return []
        if kind not in self._axes:
            axes = np.array([seen.place.axes for seen in kin])
            self._axes[kind] = axes, np.array([seen.place.dtype for seen in kin])
        axes, dtypes = self._axes[kind]
        distances = np.abs(axes - np.array(place.axes)).sum(axis=1)
        distances += _OTHER_DTYPE * (dtypes != place.dtype)
        nearest = np.argsort(distances, kind="stable")[:NEAREST]
        return [(float(distances[number]), kin[number]) for number in nearest]


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


def _seen(place: Coordinates, cost: Cost) -> _Seen:
    assert cost.time_s is not None
    time_s, energy = cost.time_s.mean, cost.dynamic_energy_j
    watts = None if energy is None else max(0.0, energy.mean) / time_s
    return _Seen(place, math.log(time_s / place.roofline_s), watts)


def _mean(values: Iterable[float], weights: Iterable[float]) -> float:
    pairs = list(zip(values, weights, strict=True))
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs)
