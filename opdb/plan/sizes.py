"""How much time and energy each configuration takes: as measured, else estimated, else by its kin.

`sizes_of` is the one place that sizes what was never measured. No prediction rests on it: it
decides what is measured first, and what share of a workload is still missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from opdb.plan.alike import Kin
from opdb.records import Configuration, Cost

Shares = dict[str, tuple[float, float]]
"""Shares of a workload's time and energy, by configuration key."""


@dataclass(frozen=True)
class Size:
    """Time (seconds) and dynamic energy (joules) of one call.

    `doubt` is the factor by which both may be larger: 1 where they were measured.
    """

    time_s: float
    dynamic_energy_j: float
    doubt: float = 1.0


def sizes_of(
    configurations: Iterable[Configuration],
    costs: Mapping[str, Cost],
    estimated: Mapping[str, Cost] = MappingProxyType({}),
) -> dict[str, Size | None]:
    """Return each configuration's size by key: as measured, else estimated, else by its kin.

    None where nothing can be said: a kind that this version lacks.
    """
    wanted = {c.key: c for c in configurations}
    timed = {k for k in wanted if (cost := costs.get(k)) is not None and cost.time_s is not None}
    kin = Kin((c for key, c in wanted.items() if key in timed), costs)
    sizes: dict[str, Size | None] = {}
    for key, configuration in wanted.items():
        if key in timed:
            sizes[key] = _size_of(costs[key], kin)
        elif key in estimated:
            sizes[key] = _estimated(estimated[key], kin)
        elif (found := kin.estimate(configuration)) is not None:
            sizes[key] = Size(found.time_s, found.time_s * found.dynamic_w, found.doubt)
        else:
            sizes[key] = None
    return sizes


def _estimated(cost: Cost, kin: Kin) -> Size:
    """Return an estimate as a size, doubted by one standard deviation of its logarithm.

    Its interval reaches two of them: all estimates of a model at once are rarely so far off.
    """
    size = _size_of(cost, kin)
    assert cost.time_s is not None
    if not cost.time_s.high or not size.time_s:
        return size
    return replace(size, doubt=math.sqrt(max(1.0, cost.time_s.high / size.time_s)))


def _size_of(cost: Cost, kin: Kin) -> Size:
    assert cost.time_s is not None
    time_s, energy = cost.time_s.mean, cost.dynamic_energy_j
    if energy is None:
        return Size(time_s, time_s * kin.usual_dynamic_w)
    # Next to base power a short operator may seem to give energy back: it takes none.
    return Size(time_s, max(0.0, energy.mean))


def whole_of(
    counts: Mapping[str, int], sizes: Mapping[str, Size | None], base_w: float
) -> tuple[float, float] | None:
    """Return a pass's device time (seconds) and energy (joules, base power included).

    `counts` says how often the workload calls each (key). None where one has no size.
    `base_w` is the board's base power in watts.
    """
    amounts = _amounts_of(counts, sizes, base_w)
    return None if amounts is None else _sum_of(amounts)


def shares_of(
    counts: Mapping[str, int],
    sizes: Mapping[str, Size | None],
    base_w: float,
    *,
    doubted: bool = False,
) -> Shares | None:
    """Return each configuration's shares of a workload's device time and energy.

    `counts` says how often the workload calls each (key). None where one has no size.
    `base_w` is the board's base power in watts.
    `doubted` takes every estimate as large as it may be, so that what is measured is not
    overrated.
    """
    amounts = _amounts_of(counts, sizes, base_w, doubted=doubted)
    if amounts is None:
        return None
    whole_s, whole_j = _sum_of(amounts)
    return {key: (_part(s, whole_s), _part(j, whole_j)) for key, (s, j) in amounts.items()}


def _amounts_of(
    counts: Mapping[str, int],
    sizes: Mapping[str, Size | None],
    base_w: float,
    *,
    doubted: bool = False,
) -> dict[str, tuple[float, float]] | None:
    """Return the time and energy of each configuration's calls in a pass; None if unsized."""
    found = {}
    for key, count in counts.items():
        size = sizes[key]
        if size is None:
            return None
        calls = count * (size.doubt if doubted else 1.0)
        energy_j = size.dynamic_energy_j + base_w * size.time_s
        found[key] = (calls * size.time_s, calls * energy_j)
    return found


def _sum_of(amounts: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    times_s, energies_j = zip(*amounts.values(), strict=True) if amounts else ((), ())
    return math.fsum(times_s), math.fsum(energies_j)


def _part(value: float, whole: float) -> float:
    return value / whole if whole > 0 else 0.0
