"""`opdb show sets`: which sets are there, from where, under which licence, how old."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opdb as package
from opdb.store import database, open_store
from opdb.store.sets import opened
from tests import published
from tests.cli.conftest import Opdb
from tests.paths import ROOT
from tests.store.conftest import fill

SET = "nvidia-h200-held-out"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one published set, one of sweeps, and no database."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path / "checkout")
    (tmp_path / "checkout" / "db").mkdir(parents=True)
    for name in (SET, "nvidia-h200-sweeps"):
        (tmp_path / "checkout" / "db" / name).symlink_to(ROOT / "db" / name)
    return tmp_path / "checkout"


def test_a_clone_has_its_sets_and_those_that_wait_for_a_sweep(opdb: Opdb, checkout: Path) -> None:
    document = json.loads(opdb("show", "sets", "--json").out)
    assert document["database"]["location"] == str(checkout / "db" / "opdb.sqlite")
    first, waiting = document["sets"]
    assert (first["name"], first["from"], first["licence"]) == (SET, "clone", "Apache-2.0")
    assert first["taken_in"] and not waiting["taken_in"]
    with opened(ROOT / "db" / SET, trusted=True) as store, store.reading() as connection:
        visits = connection.exec_driver_sql("SELECT count(*) FROM visit").scalar_one()
    assert first["visits"] == visits
    assert first["devices"] == ["nvidia-h200"] and len(first["boards"]) == 1
    assert first["measured_from"][:10] == "2026-11-23"
    out = opdb("show", "sets").out
    assert f"{SET} " in out and "Apache-2.0" in out
    assert "for sweeps, or names their device: nvidia-h200-sweeps" in out


def test_what_was_imported_and_measured_is_told_apart(opdb: Opdb, tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    with open_store(str(path)) as store:
        fill(store)
        published.import_set(store, published.SET.with_name(SET))
    imported, here = package.show("sets", db=str(path)).rows()
    assert imported["from"] == "import" and imported["licence"] == "Apache-2.0"
    assert imported["folder"] == str(published.SET.with_name(SET))
    assert (here["name"], here["from"]) == ("measured here", "here")
    assert here["visits"] > 0
