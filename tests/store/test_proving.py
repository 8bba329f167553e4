"""What comes from others is checked: costs are those that a set's own visits give."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from opdb.derive.costs import ESTIMATOR
from opdb.records import Cost
from opdb.store import open_store
from opdb.store.deriving import derived
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


def of_the_future(rows: list[Row]) -> None:
    rows[0]["estimator"] = "99"


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
        (of_the_future, "column estimator: '99': this version of opdb reads 1, 2, 3"),
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
        assert all(derived(store, board).is_as_stored for board in boards)
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


def stating(column: str, fact: str, value: object) -> Callable[[list[Row]], None]:
    """Return the change of a fact of a file's first row; a float multiplies it."""

    def change(rows: list[Row]) -> None:
        stated = json.loads(rows[0][column])
        stated[fact] = stated[fact] * value if isinstance(value, float) else value
        rows[0][column] = json.dumps(stated)

    return change


@pytest.mark.parametrize(
    ("file", "fact", "value"),
    [
        *(("calibrations", "limit_power_w", times) for times in (294 / 694, 0.7, 1.2, 10.0)),
        *(("calibrations", "copy_bytes_per_s", times) for times in (0.1, 0.5, 0.7, 1.5, 10.0)),
        *(("calibrations", "base_power_w", times) for times in (0.1, 0.5, 1.5, 10.0)),
        *(("calibrations", "matmul_float32_flops_per_s", times) for times in (0.5, 2.5)),
        *(("calibrations", "matmul_bfloat16_flops_per_s", times) for times in (0.5, 2.5)),
        *(("calibrations", "sample_period_s", times) for times in (0.1, 0.5, 2.0, 10.0)),
        *(("calibrations", "counter_period_s", times) for times in (0.5, 2.0)),
        *(("calibrations", "l2_resident_bytes", times) for times in (0.1, 10.0)),
        ("calibrations", "sample_lag_s", 10.0),
        ("calibrations", "step_response_10_90_s", -1.0),
        ("calibrations", "limit_recover_s", 100.0),
        ("calibrations", "copy_bytes_per_s", "4e12"),
        ("calibrations", "matmul_float64_flops_per_s", float("nan")),
        *(("campaigns", "base_power_w", times) for times in (0.5, 1.5)),
        *(("campaigns", "transition_s", times) for times in (0.1, 10.0)),
        ("campaigns", "container_time_s", 100.0),
        ("campaigns", "sample_period_s", 2.0),
    ],
)
def test_a_fact_that_samples_contradict_is_refused(
    file: str,
    fact: str,
    value: object,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    folder = shutil.copytree(published.SET.parent / "apart" / "nvidia-h200-curve", tmp_path / "set")
    column = {"calibrations": "facts", "campaigns": "calibration"}[file]
    edit(folder, file, stating(column, fact, value))
    target = tmp_path / "new.sqlite"
    ran = opdb("import", folder, "--db", target)
    assert ran.status == 2 and ran.err.count("\n") == 1, ran.err
    assert f"{folder}, " in ran.err and f", column {column}: '{fact} " in ran.err, ran.err
    assert "what was measured on GPU-e135ec52-" in ran.err and " allows " in ran.err
    assert not target.exists()


@pytest.mark.parametrize(
    ("file", "column", "value", "known"),
    [
        ("devices", "memory_bytes", 85017493504, "150109880320 of this device"),
        ("devices", "power_limit_w", 690.0, "700.0 of this device"),
        ("devices", "l2_bytes", 52428800, "62914560 of this device"),
        ("devices", "max_clock_hz", 1755000000.0, "1980000000.0 of this device"),
        ("devices", "name", "NVIDIA H100", "'NVIDIA H200' of this device"),
        ("hosts", "cpu", "Intel(R) N100", "'Intel(R) Xeon(R) Processor' of this host"),
        ("devices", "memory_bytes", 150754820096, None),  # another driver
        ("devices", "l2_bytes", None, None),
        ("hosts", "system", "Linux 6.19.0", None),  # an upgrade
    ],
)
def test_a_set_that_contradicts_the_database_is_refused(
    file: str,
    column: str,
    value: object,
    known: str | None,
    small: Path,
    folder: Path,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    target = tmp_path / "all.sqlite"
    assert opdb("import", small, "--db", target).status == 0
    before = target.read_bytes()
    edit(folder, file, lambda rows: rows[0].update({column: value}))
    ran = opdb("import", folder, "--db", target)
    if known is None:
        assert ran.status == 0, ran.err
        return
    assert ran.status == 2 and ran.err.count("\n") == 1, ran.err
    place = f", column {column}: {value!r}: the database has {known}"
    assert place in ran.err, ran.err
    assert target.read_bytes() == before
