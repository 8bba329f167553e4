"""Which part of a pass each configuration is: of its time and of its energy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.compose.calls import Pass
from opdb.compose.estimate import NOTHING_MEASURED, Sizes, sizes_by
from opdb.compose.grounds import Grounds
from opdb.records import Configuration, Cost

NEARLY_ALL = 0.9999
"""Where more of the time is missing, what is left are views and the like: no sum of a pass."""


@dataclass(frozen=True)
class Share:
    """A configuration's part of a workload, its shares of time and energy estimated or measured."""

    configuration: Configuration
    count: int
    share_time: float
    share_energy: float


@dataclass(frozen=True)
class EstimatedShare(Share):
    """A configuration's part of a workload that rests on an estimate, and the estimate."""

    cost: Cost


@dataclass(frozen=True)
class Shares:
    """All parts of a pass, the largest first, by what they rest on.

    `dark` was timed but not metered: it is missing from the energy, not from the time.
    """

    measured: tuple[Share, ...]
    estimated: tuple[EstimatedShare, ...]
    uncosted: tuple[Share, ...]
    dark: tuple[Share, ...]


def shares(made: Pass, costed: Mapping[str, Cost], grounds: Grounds) -> Shares:
    """Sort the parts of a pass by what they rest on; `costed` by configuration key."""
    every = [
        (share, costed.get(share.configuration.key)) for share in _every(made, costed, grounds)
    ]
    return Shares(
        measured=tuple(s for s, cost in every if cost is not None and not cost.is_estimated),
        estimated=tuple(
            EstimatedShare(s.configuration, s.count, s.share_time, s.share_energy, cost)
            for s, cost in every
            if cost is not None and cost.is_estimated
        ),
        uncosted=tuple(s for s, cost in every if cost is None),
        dark=tuple(
            replace(s, share_time=0.0)
            for s, cost in every
            if cost is not None and cost.dynamic_energy_j is None
        ),
    )


def rest(missing: Iterable[float]) -> float:
    """Return what shares leave of the whole."""
    return max(0.0, 1 - math.fsum(missing))


def _every(made: Pass, costed: Mapping[str, Cost], grounds: Grounds) -> Sequence[Share]:
    """Return every configuration's share of device time and energy, the largest first."""
    sizes = _sizes(made, costed, grounds)
    base_w = grounds.calibration.base_power_w or 0.0
    times: list[float] = []
    energies: list[float] = []
    for key, count in made.counts.items():
        time_s, dynamic_j = _size(made.configurations[key], costed.get(key), sizes)
        times.append(count * time_s)
        energies.append(count * (dynamic_j + base_w * time_s))
    whole_s, whole_j = math.fsum(times), math.fsum(energies)
    found = [
        Share(made.configurations[key], count, _part(time_s, whole_s), _part(energy_j, whole_j))
        for (key, count), time_s, energy_j in zip(made.counts.items(), times, energies, strict=True)
    ]
    return sorted(found, key=lambda s: s.share_time, reverse=True)


def _sizes(made: Pass, costed: Mapping[str, Cost], grounds: Grounds) -> Sizes:
    """Return what sizes configurations that lack a time or an energy, where there are any."""
    if len(costed) == len(made.counts) and all(
        cost.dynamic_energy_j is not None for cost in costed.values()
    ):
        return NOTHING_MEASURED
    return sizes_by(made.configurations.values(), grounds.costs)


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _size(configuration: Configuration, cost: Cost | None, sizes: Sizes) -> tuple[float, float]:
    """Return time and dynamic energy of one call: measured, or sized for weighting."""
    if cost is None or cost.time_s is None:
        return sizes.time_s(configuration), sizes.dynamic_j(configuration)
    time_s = cost.time_s.mean
    if cost.dynamic_energy_j is None:
        return time_s, sizes.dynamic_j(configuration, time_s)
    return time_s, cost.dynamic_energy_j.mean
