"""How much time and energy each configuration takes: as measured, else estimated, else by its kin.

`sizes_of` is the one place that sizes what was never measured. No predicted time or energy rests on
it: it decides what is measured first, and what share of a workload is still missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from opdb.compose.alike import Kin, Size
from opdb.records import Configuration, Cost

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
        if key in timed:
            sizes[key] = _size_of(configuration, timed[key], kin)
        elif key in estimated:
            sizes[key] = _doubted(_size_of(configuration, estimated[key], kin), estimated[key])
        else:
            sizes[key] = kin.size(configuration)
    return sizes


def _doubted(size: Size, estimate: Cost) -> Size:
    """Return an estimate's size, doubted by one standard deviation of its logarithm.

    Its interval reaches two of them: all estimates of a model at once are rarely so far off.
    """
    assert estimate.time_s is not None
    if not estimate.time_s.high or not size.time_s:
        return size
    return replace(size, doubt=math.sqrt(max(1.0, estimate.time_s.high / size.time_s)))


def _size_of(configuration: Configuration, cost: Cost, kin: Kin) -> Size:
    assert cost.time_s is not None
    time_s, energy = cost.time_s.mean, cost.dynamic_energy_j
    if energy is None:
        return Size(time_s, time_s * kin.dynamic_w(configuration))
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
) -> SharesByKey | None:
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
