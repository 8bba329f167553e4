"""Published sets as they are read: keys by their beginnings, calls in one row a workload."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from opdb.derive.review import board_costs
from opdb.errors import InputError
from opdb.store import open_store
from opdb.store.deriving import alike
from opdb.store.set_reading import read_set
from tests import published
from tests.store.test_older_database import PLAIN, rows


def test_rows_refer_by_beginnings_that_tell_keys_apart(tmp_path: Path) -> None:
    visit = rows("visits.csv", published.SET)[0]
    assert (len(visit["configuration"]), len(visit["campaign"])) == (12, 12)
    contents = read_set(published.SET)
    assert visit["configuration"] == contents["visits.csv"].values["configuration"][0][:12]
    assert {len(key) for key in contents["visits.csv"].values["configuration"]} == {64}


def test_calls_at_length_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(published.SET.with_name("nvidia-h200-held-out"), tmp_path / "set")
    shutil.copy(PLAIN / "calls.csv", folder)
    expected = r"calls.csv, line 1: columns workload, position, .*; expected workload, operators"
    with pytest.raises(InputError, match=expected):
        read_set(folder)


def test_calls_of_a_workload_in_two_rows_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(published.SET.with_name("nvidia-h200-held-out"), tmp_path / "set")
    lines = (folder / "calls.csv").read_text().splitlines(keepends=True)
    (folder / "calls.csv").write_text("".join([*lines, lines[1]]))
    said = f"calls.csv, line {len(lines) + 1}, column workload: .* in another row already"
    with pytest.raises(InputError, match=said):
        read_set(folder)


def test_costs_derived_from_the_published_samples_are_those_published() -> None:
    """What statistics are made of is published to the bit; a logarithm's last one may differ."""
    with open_store(str(published.database())) as store:
        board = min((b.uuid for b in store.boards()), key=lambda b: len(store.costs(b)) or 1e9)
        visits, hosts = store.visits(board), store.host_visits(board)
        derived = board_costs(store.campaigns(board=board), visits, hosts)
        stored = [cost for costs in store.costs(board).values() for cost in costs]
    assert len(derived) == len(stored) > 100
    names = ("configuration", "setting", "estimator")
    by_name = {tuple(getattr(cost, name) for name in names): cost for cost in derived}
    for cost in stored:
        same = by_name[tuple(getattr(cost, name) for name in names)]
        assert alike(asdict(cost), asdict(same))
