"""Costs of a store's boards, derived from their visits: stored, or held against what is stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict

from opdb.derive.costs import ESTIMATOR, board_costs
from opdb.errors import SamplesLeftOutError
from opdb.records import Cost, Json
from opdb.store.store import Store

ROUNDING = 1e-9
"""The relative error allowed for a number that was written to a file."""


def derived(store: Store, board: str) -> tuple[list[Cost], int]:
    """Derive a board's (UUID) costs from its visits, and count those that are stored otherwise.

    Costs that only one side has count, and those that differ in any respect, numbers by more than
    they are rounded to in a published set. Of several estimators' costs this version's count.
    """
    stored = {
        (cost.configuration, cost.setting): cost
        for costs in store.costs(board).values()
        for cost in sorted(costs, key=lambda cost: cost.estimator == ESTIMATOR)
    }
    found = {(cost.configuration, cost.setting): cost for cost in costs_of(store, board)}
    both = found.keys() & stored.keys()
    changed = sum(
        stored[key] != found[key] and not alike(asdict(stored[key]), asdict(found[key]))
        for key in both
    )
    return list(found.values()), changed + len(found.keys() ^ stored.keys())


def derive_costs(store: Store, board: str) -> int:
    """Derive a board's (UUID) costs from its visits and store them; return how many there are."""
    costs = costs_of(store, board)
    store.replace_costs(board, costs)
    return len(costs)


def derive_pooled(store: Store, boards: Iterable[str]) -> list[str]:
    """Derive the costs of boards (UUIDs) whose visits came from several sets, and store them.

    Return the boards whose costs stay as each set has them: of some visits the raw samples were
    left out.
    """
    left = []
    for board in sorted(boards):
        try:
            derive_costs(store, board)
        except SamplesLeftOutError:
            left.append(board)
    return left


def costs_of(store: Store, board: str, device: str | None = None) -> list[Cost]:
    """Derive a board's (UUID) costs from its visits; with a device (slug) from those on it alone.

    A board under another power limit is another device.
    """
    campaigns = store.campaigns(device, board=board)
    known = {campaign.id for campaign in campaigns}
    visits = [visit for visit in store.visits(board) if visit.campaign in known]
    hosts = [visit for visit in store.host_visits(board) if visit.campaign in known]
    return board_costs(campaigns, visits, hosts)


def alike(one: Json, other: Json) -> bool:
    """Return whether two values are the same but for rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=0.0)
    return bool(one == other)
