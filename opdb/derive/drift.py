"""Drift of a board during a campaign, by the anchors measured about once a minute."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opdb.derive.costs import VisitCost, visit_cost
from opdb.records import Campaign, Visit

POWER_BOUND = 0.02
TIME_BOUND = 0.01
"""An anchor further than these shares from its median of the campaign, or from the anchor after it,
is a drift; one visit alone scatters by about half as much."""


@dataclass(frozen=True)
class AnchorDrift:
    """One anchor visit against the campaign's median of the same anchor: value / median - 1.

    `power` is None where no power was read.
    """

    visit: str
    configuration: str
    started_at: str
    time: float
    power: float | None


def anchor_drifts(campaign: Campaign, visits: Iterable[Visit]) -> list[AnchorDrift]:
    """Return a campaign's anchor visits as deviations, in the order in which they were made.

    An anchor that the campaign measured once has nothing to be held against and is left out.
    """
    found: dict[str, list[tuple[Visit, VisitCost]]] = defaultdict(list)
    for visit in visits:
        if visit.campaign != campaign.id or visit.role != "anchor":
            continue
        cost = visit_cost(visit, campaign.calibration)
        if cost is not None and cost.time_s > 0:
            found[visit.configuration].append((visit, cost))
    drifts = [each for same in found.values() if len(same) > 1 for each in _against_median(same)]
    return sorted(drifts, key=lambda drift: drift.started_at)


def _against_median(same: Sequence[tuple[Visit, VisitCost]]) -> list[AnchorDrift]:
    time_s = statistics.median(cost.time_s for _, cost in same)
    powers = [cost.power_w for _, cost in same if cost.power_w is not None]
    power_w = statistics.median(powers) if powers else None
    return [
        AnchorDrift(
            visit.id,
            visit.configuration,
            visit.started_at,
            cost.time_s / time_s - 1,
            None if cost.power_w is None or power_w is None else cost.power_w / power_w - 1,
        )
        for visit, cost in same
    ]


def drift_flags(campaigns: Iterable[Campaign], visits: Sequence[Visit]) -> Mapping[str, str]:
    """Return a flag for every visit (id) made while the anchors around it show a drift.

    Anchors lie further than the bound from their medians of the campaign, or one from the next.
    """
    flags: dict[str, str] = {}
    of_campaign: dict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        of_campaign[visit.campaign].append(visit)
    for campaign in campaigns:
        drifts = anchor_drifts(campaign, of_campaign[campaign.id])
        if not drifts:
            continue
        for before, after in pairwise([drifts[0], *drifts, drifts[-1]]):
            said = _words(before, after)
            since = "" if before is after is drifts[0] else before.started_at
            until = None if before is after is drifts[-1] else after.started_at
            if said is None:
                continue
            for visit in of_campaign[campaign.id]:
                if since <= visit.started_at and (until is None or visit.started_at < until):
                    flags[visit.id] = said
    return flags


def _words(before: AnchorDrift, after: AnchorDrift) -> str | None:
    time = _largest(before.time, after.time)
    power = _largest(before.power or 0.0, after.power or 0.0)
    said = []
    if abs(power) > POWER_BOUND:
        said.append(f"power {100 * power:+.1f} %")
    if abs(time) > TIME_BOUND:
        said.append(f"time {100 * time:+.1f} %")
    return f"drift of the anchors around it: {', '.join(said)}" if said else None


def _largest(before: float, after: float) -> float:
    """Return the largest of two deviations and the step between them."""
    return max((before, after, after - before), key=abs)
