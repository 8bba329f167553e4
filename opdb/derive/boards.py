"""Boards of one device against each other, and measurements against their duplicates."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.derive.costs import Deriver, VisitCost, reviewed, visit_cost
from opdb.derive.statistics import t95
from opdb.records import Calibration, Campaign, Cost, Outputs, Quantity, Visit, Weights

# Factors between two boards of one device, from the anchor operators that both have measured.


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


FEWEST_ANCHORS = 2
"""Boards that share fewer have no factor: how far one anchor's ratio is from other operators' is
not known, and a cost scaled by it is farther off than one left as it is (H200, H100)."""

BOARDS = 30
"""The boards that `UNKNOWN_TIME` and its like are known from."""


@dataclass(frozen=True)
class Factor:
    """A quantity of one board over that of another, and how it scatters between anchors.

    `spread` is the standard deviation of its logarithm, `count` the number of anchors; with 0 of
    them the factor is not known (`UNKNOWN_TIME`).
    """

    value: float
    spread: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the factor, relative: common to all costs that it scales."""
        return t95((self.count or BOARDS) - 1) * self.spread / math.sqrt(self.count or 1)


UNKNOWN_TIME = Factor(1.0, 0.0087, 0)
UNKNOWN_DYNAMIC_ENERGY = Factor(1.0, 0.0576, 0)
UNKNOWN_BASE_POWER = Factor(1.0, 0.0309, 0)
"""Between boards of which no factor is known: costs stay as they are, and are as unsure as boards
differ: by the root mean square logarithm of an anchor's ratio between any two of the published
H200s (`tests/test_predict.py`; of H100s 0.7, 4.1 and 5.8 %). All costs of a pass may be off alike,
because its operators are: all of a decoding step read weights."""


@dataclass(frozen=True)
class Factors:
    """The factors that scale costs of one board to another; None: base power was not measured."""

    base_power: float | None
    time: Factor = UNKNOWN_TIME
    dynamic_energy: Factor = UNKNOWN_DYNAMIC_ENERGY

    @property
    def is_known(self) -> bool:
        return bool(self.time.count or self.dynamic_energy.count)


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
        statistics.median(times) if times else None, statistics.median(dynamic) if dynamic else None
    )


def factors(to: BoardAnchors, origin: BoardAnchors) -> Factors:
    shared = [(to.anchors[key], origin.anchors[key]) for key in to.anchors if key in origin.anchors]
    base = (
        to.base_power_w / origin.base_power_w if to.base_power_w and origin.base_power_w else None
    )
    return Factors(
        base,
        _factor([(a.time_s, b.time_s) for a, b in shared], UNKNOWN_TIME),
        _factor(
            [(a.dynamic_energy_j, b.dynamic_energy_j) for a, b in shared], UNKNOWN_DYNAMIC_ENERGY
        ),
    )


def _factor(pairs: Iterable[tuple[float | None, float | None]], unknown: Factor) -> Factor:
    """Return the geometric mean of the ratios of positive values; `unknown` of too few."""
    logs = [
        math.log(a / b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0
    ]
    if len(logs) < FEWEST_ANCHORS:
        return unknown
    return Factor(math.exp(statistics.fmean(logs)), statistics.stdev(logs), len(logs))


def transferred(cost: Cost, to: str, by: Factors, base_power_w: float | None) -> Cost:
    """Return a cost as another board would have it: times and dynamic energies by their factors.

    `base_power_w` is the other board's; gross energy and power follow from it, and are as unsure
    as an unscaled dynamic energy where it is not known. The spread of each factor widens the
    intervals.
    """
    time_s = _scaled(cost.time_s, by.time)
    dynamic = _scaled(cost.dynamic_energy_j, by.dynamic_energy, positive=cost.is_estimated)
    energy = _scaled(cost.energy_j, UNKNOWN_DYNAMIC_ENERGY)
    power = _scaled(cost.power_w, UNKNOWN_DYNAMIC_ENERGY)
    if dynamic and time_s and base_power_w is not None and cost.energy_j and cost.energy_j.mean:
        gross_j, by_energy = dynamic.mean + base_power_w * time_s.mean, by.dynamic_energy
        energy = _scaled(cost.energy_j, replace(by_energy, value=gross_j / cost.energy_j.mean))
        if cost.power_w:
            watts = gross_j / time_s.mean
            power = _scaled(cost.power_w, replace(by_energy, value=watts / cost.power_w.mean))
    return replace(
        cost,
        board=to,
        time_s=time_s,
        eager_time_s=_scaled(cost.eager_time_s, by.time),
        dynamic_energy_j=dynamic,
        energy_j=energy,
        power_w=power,
        limited=cost.limited and cost.limited.scaled(by.time.value, by.dynamic_energy.value),
        hot=cost.hot and cost.hot.scaled(by.time.value, by.dynamic_energy.value),
    )


def _scaled(quantity: Quantity | None, by: Factor, *, positive: bool = True) -> Quantity | None:
    if quantity is None:
        return None
    median, mean, width = quantity.median * by.value, quantity.mean * by.value, quantity.half_width
    if width is not None:
        of_one = math.sqrt(by.count + 1) * by.half_width  # of the factor of one operator
        width = math.hypot(width * by.value, of_one * abs(mean))
    return Quantity.around(median, mean, width, quantity.count, positive=positive)


def in_words(by: Factors) -> str:
    """As in "time × 0.998 ± 0.4 % from 6 anchors, dynamic energy unscaled ± 11.8 %"."""
    said = [
        f"{name} × {factor.value:.3f} ± {100 * factor.spread:.1f} % from {factor.count} anchors"
        if factor.count
        else f"{name} unscaled ± {100 * factor.half_width:.1f} %"
        for name, factor in (("time", by.time), ("dynamic energy", by.dynamic_energy))
    ]
    if by.base_power is not None:
        said.append(f"base power × {by.base_power:.3f}")
    return ", ".join(said)


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


# Blind duplicates: configurations measured twice over, to see whether stated intervals hold.


VISITS = 2
"""Of each side of a pair: rounds beyond these are the measurement's alone."""


@dataclass(frozen=True)
class Difference:
    """The difference between two independent estimates of one quantity.

    `relative` is (second - first) / their mean; `inside` says whether the difference lies within
    the combined 95 % interval, the root of the sum of the squared half widths.
    """

    relative: float
    inside: bool


@dataclass(frozen=True)
class DuplicatePair:
    measured: Cost
    time: Difference | None
    energy: Difference | None


@dataclass(frozen=True)
class Agreement:
    """In how many pairs a quantity's estimates agree within their combined 95 % interval."""

    pairs: int
    inside: int
    median_difference: float

    @property
    def share_inside(self) -> float:
        """The share of the pairs that agree: 0.95 where intervals are what they say."""
        return self.inside / self.pairs


def pairs(campaigns: Sequence[Campaign], visits: Sequence[Visit]) -> list[DuplicatePair]:
    """The two of a pair share no visit and no pooled spread: each side pools its own."""
    found = [v for v in reviewed(campaigns, visits) if v.access == "model"]
    twins = [v for v in found if v.role == "duplicate"]
    # Of weights hot and cold the duplicate saw one, and its outputs went to memory of one sort:
    # the measurement in that state is its pair.
    states = {(v.configuration, v.setting): _state(v) for v in twins}
    measured = [
        v
        for v in found
        if v.role == "measurement"
        and states.get((v.configuration, v.setting), _state(v)) == _state(v)
    ]
    first = {(cost.configuration, cost.setting): cost for cost in _costs(campaigns, measured)}
    return [
        DuplicatePair(
            first[key],
            _difference(first[key].time_s, cost.time_s),
            _difference(first[key].energy_j, cost.energy_j),
        )
        for cost in _costs(campaigns, twins)
        if (key := (cost.configuration, cost.setting)) in first
        and first[key].time_s is not None
        and cost.time_s is not None
    ]


def _state(visit: Visit) -> tuple[Weights, Outputs]:
    return visit.weights, visit.wrote_to


def _costs(campaigns: Sequence[Campaign], visits: Iterable[Visit]) -> list[Cost]:
    seen: Counter[tuple[str, str, str]] = Counter()
    chosen = []
    for visit in visits:
        key = visit.configuration, visit.setting, visit.weights
        seen[key] += visit.outcome == "ok"
        if seen[key] <= VISITS:
            chosen.append(replace(visit, role="measurement"))
    return Deriver(campaigns, chosen).costs({})


def _difference(first: Quantity | None, second: Quantity | None) -> Difference | None:
    """Return how two quantities differ; None where one lacks an interval, or both are zero."""
    if first is None or second is None or first.mean + second.mean == 0:
        return None
    if (one := first.half_width) is None or (other := second.half_width) is None:
        return None
    combined = math.hypot(one, other)
    apart = second.mean - first.mean
    return Difference(2 * apart / (first.mean + second.mean), abs(apart) <= combined)


def agreement(differences: Iterable[Difference | None]) -> Agreement | None:
    """Sum up the differences of one quantity; None where there is none."""
    found = [difference for difference in differences if difference is not None]
    if not found:
        return None
    return Agreement(
        len(found),
        sum(difference.inside for difference in found),
        statistics.median(abs(difference.relative) for difference in found),
    )
