"""A database that a released opdb made opens in this one, with every row that it had."""

from __future__ import annotations

import gzip
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

import opdb
from opdb.cli import main
from opdb.errors import DatabaseError
from opdb.store import Store, open_store, schema, seal
from opdb.store.exchange import export_set, import_set
from tests.paths import ROOT
from tests.store import samples
from tests.store.released import FOLDER

RELEASED = re.findall(
    r"(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text()
)
INSIDE = ("alembic_version", "claim", "source")
"""Tables of which a set holds nothing."""


@pytest.fixture(params=RELEASED)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The database that a release made."""
    path = tmp_path / "released.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / f"{request.param}.sqlite.gz").read_bytes()))
    return path


def rows(path: Path) -> dict[str, int]:
    """Count the rows of every table; of calls, however many share a row."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables if not name.startswith("sqlite_")]
        counts = {n: connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in names}
        if any(row[1] == "calls" for row in connection.execute("PRAGMA table_info(call)")):
            [counts["call"]] = connection.execute("SELECT sum(calls) FROM call").fetchone()
        return {name: count for name, count in counts.items() if name not in INSIDE}


def read(store: Store) -> Mapping[str, int]:
    """Read all that a database holds as records, and count it as `rows` does."""
    boards = {board.uuid for board in store.boards()}
    workloads = store.workloads()
    return {
        "configuration": len(store.configurations()),
        "workload": len(workloads),
        "call": sum(len(workload.calls) for workload in workloads),
        "device": len(store.devices()),
        "board": len(store.boards()),
        "host": len(store.hosts()),
        "campaign": len(store.campaigns()),
        "board_calibration": len(store.board_calibrations()),
        "profile": sum(len(store.profiles(device.slug)) for device in store.devices()),
        "learned": sum(len(store.learned(device.slug)) for device in store.devices()),
        "visit": sum(len(store.visits(board)) for board in boards),
        "host_visit": len(store.host_visits()),
        "model_run": len(store.model_runs()),
        "cost": sum(len(c) for board in boards for c in store.costs(board).values()),
    }


LATER = ("host_calibration",)
"""Tables that were added since."""


def test_every_release_has_its_database() -> None:
    assert RELEASED[0] == opdb.__version__ and RELEASED[-1] == "0.1.0"
    assert sorted(RELEASED) == sorted(p.name.removesuffix(".sqlite.gz") for p in FOLDER.iterdir())


def test_it_holds_something_of_everything_and_is_sealed(released: Path) -> None:
    assert released.stat().st_size % 4096 == 28 and not seal.broken(released)
    assert all(rows(released).values())


def test_all_that_it_holds_is_read_and_exported(released: Path, tmp_path: Path) -> None:
    before = rows(released)
    with open_store(str(released)) as store:
        found = read(store)
        assert found == {name: before[name] for name in found}
        assert set(before) == {*found, "tally"}
        with store.reading() as connection:
            assert sum(connection.scalars(select(schema.tally.c.visits))) == before["visit"]
        slugs = [device.slug for device in store.devices()]
        for slug in slugs:
            export_set(store, tmp_path / slug, device=slug)
    assert rows(released) == before | dict.fromkeys(LATER, 0)
    with open_store(str(tmp_path / "again.sqlite")) as again:
        for slug in slugs:
            import_set(again, tmp_path / slug)
        derived_anew = {"cost": read(again)["cost"]}
        assert read(again) == {**found, **derived_anew}


def test_it_answers(released: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(str(released)) as store:
        ours = samples.workload().key
        name = next(workload.name for workload in store.workloads() if workload.key != ours)
    assert main(["status", "--db", str(released)]) == 0
    assert main(["predict", name, "-b", "32", "--db", str(released), "--no-harvest"]) == 0
    assert name in capsys.readouterr().out


def test_the_schema_of_a_release_does_not_change(tmp_path: Path) -> None:
    """What a released revision calls its tables is what every opdb that writes it makes."""
    for version in RELEASED:
        path = tmp_path / f"{version}.sqlite"
        path.write_bytes(gzip.decompress((FOLDER / f"{version}.sqlite.gz").read_bytes()))
        with closing(sqlite3.connect(path)) as connection:
            [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert revision in schema.REVISIONS
        if revision == schema.REVISIONS[-1]:
            open_store(str(tmp_path / "today.sqlite")).close()
            assert made(path) == made(tmp_path / "today.sqlite")


def test_one_that_was_upgraded_has_the_columns_and_indexes_of_a_new_one(
    released: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.sqlite"
    for path in (released, new):
        open_store(str(path)).close()
    assert columns(released) == columns(new)


def columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the columns and indexes of every table, in the order of their names."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables]
        return {
            name: sorted(
                tuple(row[1:]) if what == "table_info" else tuple(row[1:3])
                for what in ("table_info", "index_list")
                for row in connection.execute(f"PRAGMA {what}({name})")
            )
            for name in names
        }


def made(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        return connection.execute(query).fetchall()


def test_a_newer_one_is_refused_by_name(released: Path) -> None:
    with closing(sqlite3.connect(released)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    before = released.read_bytes()
    newest = schema.REVISIONS[-1]
    said = f"its schema 0999 is newer than this version of opdb reads .{newest}.; upgrade opdb"
    with pytest.raises(DatabaseError, match=said):
        open_store(str(released))
    assert released.read_bytes() == before
