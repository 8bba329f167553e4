"""Factors between two boards of one device, from the anchor operators that both have measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.derive.costs import VisitCost, visit_cost
from opdb.derive.statistics import t95
from opdb.records import Calibration, Campaign, Cost, OperatingPoint, Quantity, Visit

MOST_LONGER = 1.1
"""An anchor alone is shorter than among neighbours; above this ratio it waited for the host."""


@dataclass(frozen=True)
class AnchorCost:
    """The cost of one call of an anchor on a board: the median over its anchor visits.

    The time is that of replays of the anchor alone, which visits of every version have; None where
    the device waited for the host in all of them.
    """

    time_s: float | None
    dynamic_energy_j: float | None


@dataclass(frozen=True)
class BoardAnchors:
    """A board's base power (watts, its campaigns' median) and its anchors by configuration key."""

    base_power_w: float | None
    anchors: Mapping[str, AnchorCost]


@dataclass(frozen=True)
class Factor:
    """A quantity of one board over that of another, and how it scatters between anchors.

    `spread` is the standard deviation of its logarithm; None where one anchor stands alone.
    """

    value: float
    spread: float | None
    count: int

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the factor, relative: common to all costs that it scales.

        0 for a single anchor, which has no spread.
        """
        return t95(self.count - 1) * self.spread / math.sqrt(self.count) if self.spread else 0.0

    @property
    def half_width_of_one(self) -> float:
        """Half the 95 % interval of one operator's ratio between two boards, relative."""
        return math.sqrt(self.count + 1) * self.half_width


@dataclass(frozen=True)
class Factors:
    """The factors that scale costs of one board to another; None where no anchor gives one."""

    base_power: float | None
    time: Factor | None
    dynamic_energy: Factor | None


def board_anchors(campaigns: Sequence[Campaign], visits: Iterable[Visit]) -> BoardAnchors:
    """Summarise a board's anchor visits; `visits` in other roles are ignored.

    So are anchors that wrote to reused memory, as on two boards of one day: boards are compared by
    anchors that wrote to fresh memory.
    """
    calibrations = {campaign.id: campaign.calibration for campaign in campaigns}
    found: dict[str, list[VisitCost]] = defaultdict(list)
    for visit in visits:
        if visit.role != "anchor" or visit.wrote_to != "fresh":
            continue
        if cost := visit_cost(visit, calibrations[visit.campaign]):
            found[visit.configuration].append(cost)
    powers = [c.base_power_w for c in calibrations.values() if c.base_power_w is not None]
    return BoardAnchors(
        statistics.median(powers) if powers else None,
        {key: _median_cost(costs) for key, costs in found.items()},
    )


def _median_cost(costs: Sequence[VisitCost]) -> AnchorCost:
    dynamic = [c.dynamic_energy_j for c in costs if c.dynamic_energy_j is not None]
    times = [c.replay_time_s for c in costs if c.replay_time_s <= MOST_LONGER * c.time_s]
    return AnchorCost(
        statistics.median(times) if times else None,
        statistics.median(dynamic) if dynamic else None,
    )


def factors(to: BoardAnchors, origin: BoardAnchors) -> Factors:
    """Return the factors that scale costs of the board `origin` to the board `to`."""
    shared = [(to.anchors[key], origin.anchors[key]) for key in to.anchors if key in origin.anchors]
    base = (
        to.base_power_w / origin.base_power_w if to.base_power_w and origin.base_power_w else None
    )
    return Factors(
        base,
        _factor([(a.time_s, b.time_s) for a, b in shared]),
        _factor([(a.dynamic_energy_j, b.dynamic_energy_j) for a, b in shared]),
    )


def _factor(pairs: Iterable[tuple[float | None, float | None]]) -> Factor | None:
    """Return the geometric mean of the ratios of positive values; None of none."""
    logs = [
        math.log(a / b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0
    ]
    if not logs:
        return None
    spread = statistics.stdev(logs) if len(logs) > 1 else None
    return Factor(math.exp(statistics.fmean(logs)), spread, len(logs))


def transferred(cost: Cost, to: str, by: Factors, base_power_w: float | None) -> Cost:
    """Return a cost as another board would have it: times and dynamic energies by their factors.

    `base_power_w` is the other board's; gross energy and power follow from it. The spread of each
    factor widens the intervals. Without a factor a quantity is taken as it is.
    """
    time_s = _scaled(cost.time_s, by.time)
    dynamic = _scaled(cost.dynamic_energy_j, by.dynamic_energy, positive=cost.is_estimated)
    energy, power = cost.energy_j, cost.power_w
    if dynamic and time_s and base_power_w is not None and cost.energy_j and cost.energy_j.mean:
        gross_j = dynamic.mean + base_power_w * time_s.mean
        energy = _scaled(cost.energy_j, _exactly(gross_j / cost.energy_j.mean, by.dynamic_energy))
        if cost.power_w:
            watts = gross_j / time_s.mean
            power = _scaled(cost.power_w, _exactly(watts / cost.power_w.mean, by.dynamic_energy))
    return replace(
        cost,
        board=to,
        time_s=time_s,
        eager_time_s=_scaled(cost.eager_time_s, by.time),
        dynamic_energy_j=dynamic,
        energy_j=energy,
        power_w=power,
        limited=_point(cost.limited, by),
        hot=_point(cost.hot, by),
    )


def _exactly(value: float, like: Factor | None) -> Factor:
    return Factor(value, like.spread if like else None, like.count if like else 0)


def _scaled(
    quantity: Quantity | None, by: Factor | None, *, positive: bool = True
) -> Quantity | None:
    """Return a quantity times a factor, its interval widened by the factor's spread."""
    if quantity is None or by is None:
        return quantity
    median, mean, width = quantity.median * by.value, quantity.mean * by.value, quantity.half_width
    if width is not None:
        width = math.hypot(width * by.value, by.half_width_of_one * abs(mean))
    return Quantity.around(median, mean, width, quantity.count, positive=positive)


def _point(point: OperatingPoint | None, by: Factors) -> OperatingPoint | None:
    if point is None:
        return None
    time = by.time.value if by.time else 1.0
    dynamic = by.dynamic_energy.value if by.dynamic_energy else 1.0
    energy_j = point.dynamic_energy_j
    return replace(
        point,
        time_s=point.time_s * time,
        dynamic_energy_j=None if energy_j is None else energy_j * dynamic,
    )


def in_words(by: Factors) -> str:
    """Say factors with their spread, as in "time × 0.998 ± 0.4 %, dynamic energy × 1.02 ± 5 %"."""
    said = [
        f"{name} × {factor.value:.3f}"
        + (f" ± {100 * factor.spread:.1f} %" if factor.spread is not None else "")
        for name, factor in (("time", by.time), ("dynamic energy", by.dynamic_energy))
        if factor is not None
    ]
    if by.base_power is not None:
        said.append(f"base power × {by.base_power:.3f}")
    return ", ".join(said) or "no factors: they share no anchor"


def usual_calibration(campaigns: Sequence[Campaign]) -> Calibration:
    """Return the calibration of a board's latest campaign that has base power.

    Base power itself is that of the campaign in the middle of them: another process that holds a
    context through one of them raises it (by 8 of 124 W on an H200). `campaigns` are those of the
    board, one at least, in the order of their beginning.
    """
    powered = [c.calibration for c in campaigns if c.calibration.base_power_w is not None]
    if not powered:
        return campaigns[-1].calibration
    ranked = sorted(powered, key=lambda found: found.base_power_w or 0.0)
    middle = ranked[(len(ranked) - 1) // 2]
    return replace(
        powered[-1],
        base_power_w=middle.base_power_w,
        base_power_interval_w=middle.base_power_interval_w,
    )
