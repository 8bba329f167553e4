"""The benchmark of a large database, in small: its rows are valid, marked, and found again."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.at_scale import DEVICE, OTHER_DEVICE, Size, build_large
from opdb.bench.plan import PlanRequest, plan
from opdb.footprint import resident_bytes
from opdb.predict import predictor_for
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import open_store
from opdb.store.tallies import recount
from tests import published

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "at_scale.py"
SIZE = Size(configurations=2000, visits=20_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.sqlite"
    build_large(path, published.database(), SIZE)
    return path


def test_the_rows_are_there_and_marked(large: Path) -> None:
    with closing(sqlite3.connect(large)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        marked = {
            "visit": "id",
            "host_visit": "id",
            "model_run": "campaign",
            "cost": "board",
        }
        with closing(sqlite3.connect(published.database())) as real:
            for table, column in marked.items():
                all_rows = f"SELECT count(*) FROM {table}"
                of_ours = f"{all_rows} WHERE {column} LIKE 'synthetic%'"
                [(ours,)] = connection.execute(of_ours)
                [(there,)] = connection.execute(all_rows)
                assert ours > 0 and real.execute(all_rows).fetchall() == [(there - ours,)]
        visits = "SELECT count(*) FROM visit WHERE id LIKE 'synthetic%'"
        assert connection.execute(visits).fetchone()[0] >= 0.9 * SIZE.visits


def test_the_tally_is_what_the_store_counts(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(large)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
    with open_store(str(path)) as store:
        tallied = "SELECT * FROM tally ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9"
        with store.reading() as connection:
            built = connection.exec_driver_sql(tallied).all()
            numbers = connection.exec_driver_sql("SELECT id FROM configuration").scalars().all()
        with store.writing() as connection:
            recount(connection, numbers)
            assert connection.exec_driver_sql(tallied).all() == built


def test_records_can_be_read_and_asked(large: Path) -> None:
    with open_store(str(large)) as store:
        devices = {device.slug: device for device in store.devices()}
        assert set(devices) == {DEVICE, OTHER_DEVICE}
        with open_store(str(published.database())) as own:
            assert len(store.configurations()) == 2000 + len(own.configurations())
        synthetic = store.boards(OTHER_DEVICE)[0]
        visits = store.visits(synthetic.uuid)
        assert visits and {v.role for v in visits} == {"measurement", "duplicate", "anchor"}
        assert store.costs(synthetic.uuid) and store.host_visits(synthetic.uuid)
        predictor = predictor_for(store, DEVICE)
        [workload] = store.workloads("resnet152", batch_size=32)
        answer = predictor.answer(workload, "eager")
        assert answer.prediction.board.startswith("GPU-") and answer.prediction.coverage_calls == 1
        board = next(b for b in store.boards(DEVICE) if b.uuid.startswith("GPU-"))
        request = PlanRequest(resident_bytes=resident_bytes(devices[DEVICE]))
        found = plan(store, board, DEFAULT_SETTINGS, request)
        jobs = {job.configuration.key for job in found.rounds[0]}
        assert 0 < len(jobs) < 0.2 * 2000, "most is measured"
        assert store.standing(DEVICE).pending


def test_it_runs(tmp_path: Path) -> None:
    published.copy_to(tmp_path / "published.sqlite")  # it takes up what is there
    arguments = ("--configurations", "600", "--visits", "3000", "--rounds", "1", "--json")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "--keep", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=SCRIPT.parents[1],
    )
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert set(found) >= {"predict", "status", "planning", "bars_met"}
    assert all(found[name]["ratio"] > 0 for name in found if name != "bars_met")
