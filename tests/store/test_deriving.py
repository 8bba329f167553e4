"""Costs derived anew: what is stored, and what is said where it is not the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from opdb.store import open_store
from opdb.store.deriving import alike, derive_costs, derived
from tests import published


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_what_differs_is_counted_and_put_right(path: Path) -> None:
    with open_store(str(path)) as store:
        board = min(store.cost_counts(), key=store.cost_counts().__getitem__)
        before = store.costs(board)
        assert derived(store, board).is_as_stored
        first, second, *rest = (cost for costs in before.values() for cost in costs)
        assert first.time_s is not None
        slower = replace(first, time_s=first.time_s.moved(0.5 * first.time_s.mean))
        older = replace(second, estimator="0")
        store.replace_costs(board, [slower, older, *rest[:-1]])
        found = derived(store, board)
        assert (found.new, found.gone, found.changed) == (1, 0, 2)
        assert found.time == pytest.approx(1 / 3) and found.energy == 0
        assert derive_costs(store, board) == len(before)
        after = store.costs(board)
        assert after.keys() == before.keys(), "the older estimator's cost is gone too"
        for key, costs in before.items():
            for old, new in zip(costs, after[key], strict=True):
                assert alike(asdict(old), asdict(new))


def test_a_cost_without_visits_is_gone(path: Path) -> None:
    with open_store(str(path)) as store:
        board = min(store.cost_counts(), key=store.cost_counts().__getitem__)
        cost = next(iter(store.costs(board).values()))[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        number = "SELECT id FROM configuration WHERE key = ?"
        connection.execute(
            f"DELETE FROM visit WHERE configuration_id = ({number})", (cost.configuration,)
        )
    with open_store(str(path)) as store:
        assert derived(store, board).gone == 1
