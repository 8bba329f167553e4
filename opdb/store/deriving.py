"""Costs of a store's boards, derived from their visits and stored."""

from __future__ import annotations

from opdb.derive.review import board_costs
from opdb.records import Cost
from opdb.store.store import Store


def costs_from_visits(store: Store, board: str) -> list[Cost]:
    """Derive a board's (UUID) costs from its visits, whatever is stored."""
    campaigns = store.campaigns(board=board)
    return board_costs(campaigns, store.visits(board), store.host_visits(board))


def derive_costs(store: Store, board: str) -> int:
    """Derive a board's (UUID) costs from its visits and store them; return how many there are."""
    costs = costs_from_visits(store, board)
    store.replace_costs(board, costs)
    return len(costs)
