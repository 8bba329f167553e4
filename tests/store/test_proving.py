"""What comes from others is checked: costs are those that a set's own visits give."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from opdb.derive.costs import ESTIMATOR
from opdb.records import Cost
from opdb.store import open_store
from opdb.store.costs import derived
from opdb.store.opening import FILE
from opdb.store.sets import opened
from tests import published
from tests.cli.conftest import Opdb, opdb  # noqa: F401
from tests.store.small_set import Row, edit, write_small_set

SETS = sorted(path.parent for path in published.SET.parent.glob(f"**/{FILE}"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "set"
    write_small_set(folder)
    return folder


@pytest.fixture
def folder(small: Path, tmp_path: Path) -> Path:
    return shutil.copytree(small, tmp_path / "set")


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.name)
def test_the_costs_of_the_published_sets_are_those_of_their_visits(path: Path) -> None:
    """The first command on a fresh clone takes them as they stand: they are proved here."""
    with opened(path) as found, opened(path, trusted=True) as given:
        for board in given.boards():
            assert found.costs(board.uuid) == given.costs(board.uuid)


def times_ten(rows: list[Row]) -> None:
    for row in rows:
        for part in ("median", "mean", "low", "high"):
            if row[f"time_s_{part}"]:
                row[f"time_s_{part}"] *= 10


def negative(rows: list[Row]) -> None:
    rows[3].update(time_s_median=-1e-05, time_s_mean=-1e-05)


def a_host_time(rows: list[Row]) -> None:
    row = next(row for row in rows if row["host_time_s"] != "{}")
    row["host_time_s"] = row["host_time_s"].replace('"mean":', '"mean":1')


def fewer_visits(rows: list[Row]) -> None:
    rows[0]["visits"] = 7


def a_flag(rows: list[Row]) -> None:
    rows[2]["flags"] = '["fine"]'


def without_its_visits(rows: list[Row]) -> None:
    rows[1]["setting"] = '{"tf32_matmul":true,"x":1}'


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (times_ten, "column time_s: "),
        (negative, "column time_s: {'median': -1e-05"),
        (a_host_time, "column host_time_s: {"),
        (fewer_visits, "column visits: 7: from the visits of the set opdb derives "),
        (a_flag, "column flags: ('fine',): from the visits of the set opdb derives ()"),
        (without_its_visits, "rests on no visit of the set"),
    ],
)
def test_a_cost_that_the_visits_do_not_give_is_refused(
    lie: Callable[[list[Row]], None],
    said: str,
    folder: Path,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    edit(folder, "costs", lie)
    target = tmp_path / "new.sqlite"
    ran = opdb("import", folder, "--db", target)
    assert ran.status == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert str(folder) in ran.err and said in ran.err, ran.err
    assert not target.exists()


def costs_in(path: Path) -> list[Cost]:
    with open_store(str(path)) as store:
        boards = [board.uuid for board in store.boards()]
        assert all(derived(store, board)[1] == 0 for board in boards)
        return [cost for b in boards for costs in store.costs(b).values() for cost in costs]


def test_costs_of_an_older_estimator_and_missing_ones_are_derived(
    small: Path,
    folder: Path,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    assert opdb("import", small, "--db", tmp_path / "right.sqlite").status == 0

    def older(rows: list[Row]) -> None:
        times_ten(rows)
        for row in rows:
            row["estimator"] = "2"
        rows.pop()

    edit(folder, "costs", older)
    assert opdb("import", folder, "--db", tmp_path / "older.sqlite").status == 0
    found = costs_in(tmp_path / "older.sqlite")
    assert found == costs_in(tmp_path / "right.sqlite")
    assert {cost.estimator for cost in found} == {ESTIMATOR}


def test_an_export_writes_the_costs_that_its_visits_give(
    small: Path,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    path = tmp_path / "stale.sqlite"
    assert opdb("import", small, "--db", path).status == 0
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE cost SET visits = 1, time_s_mean = 1")
    assert opdb("export", tmp_path / "again", "--db", path).status == 0
    with opened(tmp_path / "again") as again, opened(small) as before:
        for board in before.boards():
            assert again.costs(board.uuid) == before.costs(board.uuid)
    assert opdb("import", tmp_path / "again", "--db", tmp_path / "other.sqlite").status == 0
