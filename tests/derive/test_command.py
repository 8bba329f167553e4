from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opdb.derive.__main__ import run as derive
from opdb.store import open_store
from opdb.store.costs import derive_costs
from tests import published
from tests.cli.conftest import Opdb
from tests.store import samples


@pytest.fixture
def database(tmp_path: Path, opdb: Opdb) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_published_costs_are_what_the_samples_say(opdb: Opdb, database: Path) -> None:
    ran = opdb("--check", "--json", "--quiet", run=derive)
    assert ran.status == 0, ran.err
    boards = json.loads(ran.out)
    assert {each["device"] for each in boards} == {published.DEVICE}
    assert all(each["costs"] > 100 and each["changed"] == 0 for each in boards)


def test_costs_of_a_board_in_two_sets_rest_on_the_visits_of_both(
    opdb: Opdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either order, and again: what a set says of such a board is of its own visits alone."""
    for number in (1, 2):
        with open_store(str(tmp_path / f"{number}.sqlite")) as store:
            campaign = samples.campaign(f"campaign-{number}")
            store.save_campaign(campaign)
            store.save_configurations([samples.CONV])
            seen = samples.visit(f"visit-{number}", campaign=campaign.id, restore=None, flags=())
            store.save_visit(seen)
            derive_costs(store, "GPU-1")
        monkeypatch.setenv("OPDB_DB", str(tmp_path / f"{number}.sqlite"))
        assert opdb("export", tmp_path / f"set-{number}").status == 0
    monkeypatch.setenv("OPDB_DB", str(tmp_path / "both.sqlite"))
    for number in (2, 1, 2):
        assert opdb("import", tmp_path / f"set-{number}").status == 0
    with open_store(str(tmp_path / "both.sqlite")) as store:
        [[cost]] = store.costs("GPU-1").values()
    assert cost.visits == 2
    assert opdb("--check", run=derive).status == 0


def test_a_cost_that_was_altered_is_told_and_put_right(opdb: Opdb, database: Path) -> None:
    published.keep_kinds(database, "linear", "relu")
    with closing(sqlite3.connect(database)) as connection, connection:
        [(board, rowid)] = connection.execute(
            "SELECT board, rowid FROM cost WHERE energy_j_mean > 0 LIMIT 1"
        )
        connection.execute(
            "UPDATE cost SET energy_j_mean = energy_j_mean / 2 WHERE rowid = ?", (rowid,)
        )
    ran, again = (opdb("--check", run=derive) for _ in range(2))
    assert ran.status == again.status == 1, "to check puts nothing right"
    assert ran.err.count("opdb:") == 1 and board in ran.err
    assert "python -m opdb.derive puts that right" in ran.err
    ran = opdb("--device", published.DEVICE, run=derive)
    assert ran.status == 0
    assert opdb("--check", "--quiet", run=derive).status == 0
