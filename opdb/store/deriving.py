"""Costs of a store's boards, derived from their visits: stored, or held against what is stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from opdb.derive.costs import ESTIMATOR, board_costs
from opdb.errors import SamplesLeftOutError
from opdb.records import Cost, Json
from opdb.store.store import Store

ROUNDING = 1e-9
"""The relative error allowed for a number that was written to a file."""


@dataclass(frozen=True)
class Derived:
    """A board's costs, derived anew, beside those that were stored.

    `new` and `gone` count costs that only one side has, `changed` those that differ in any respect,
    numbers by more than they are rounded to in a published set.
    """

    board: str
    costs: tuple[Cost, ...]
    new: int
    gone: int
    changed: int

    @property
    def is_as_stored(self) -> bool:
        """Whether nothing is new, gone or changed."""
        return not (self.new or self.gone or self.changed)


def derived(store: Store, board: str) -> Derived:
    """Derive a board's (UUID) costs from its visits and compare them with what is stored.

    Where several estimators' costs are stored, those of this version's are compared.
    """
    stored = {
        (cost.configuration, cost.setting): cost
        for costs in store.costs(board).values()
        for cost in sorted(costs, key=lambda cost: cost.estimator == ESTIMATOR)
    }
    found = costs_of(store, board)
    pairs = [(stored.pop((cost.configuration, cost.setting), None), cost) for cost in found]
    both = [(old, cost) for old, cost in pairs if old is not None]
    return Derived(
        board=board,
        costs=tuple(found),
        new=len(pairs) - len(both),
        gone=len(stored),
        changed=sum(old != cost and not alike(asdict(old), asdict(cost)) for old, cost in both),
    )


def derive_costs(store: Store, board: str) -> int:
    """Derive a board's (UUID) costs from its visits and store them; return how many there are."""
    costs = costs_of(store, board)
    store.replace_costs(board, costs)
    return len(costs)


def derive_pooled(store: Store, boards: Iterable[str]) -> None:
    """Derive the costs of boards (UUIDs) whose visits came from several sets, and store them.

    Where the raw samples of a visit were left out, costs stay as each set has them.
    """
    for board in sorted(boards):
        with suppress(SamplesLeftOutError):
            derive_costs(store, board)


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
