"""The comparison of workloads, on the published set with visits of other workloads added."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.workloads import ACCESSES, Row, compare, medians, weighted
from opdb.predict import choose_device
from opdb.records import Access, Stretch, Visit
from opdb.store import Store, open_store
from tests import published

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "workloads.py"


def twice_as_slow(visit: Visit, access: Access) -> Visit:
    """Return a visit under another workload: twice the time at the same power, utilized by 0.9."""
    assert visit.stretch is not None
    stretch: Stretch = replace(
        visit.stretch, replay_times_s=doubled(visit.stretch.replay_times_s), utilization=0.9
    )
    restore, among = visit.restore, visit.neighbours
    if restore is not None:
        restore = replace(restore, replay_times_s=doubled(restore.replay_times_s))
    if among is not None:
        among = replace(among, times_s=doubled(among.times_s), alone_s=doubled(among.alone_s))
    slow = replace(visit, stretch=stretch, restore=restore, neighbours=among)
    return replace(slow, id=f"{access}-{visit.id}", access=access)


def doubled(times_s: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(2 * t for t in times_s)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every operator of AlexNet reused, twice as slow; its linear layers also streamed."""
    path = published.copy_to(tmp_path_factory.mktemp("db") / "workloads.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        # transitions between operators are no visits, and so no slower
        connection.execute(
            "UPDATE campaign SET calibration = json_remove(calibration, '$.transition_s')"
        )
    with open_store(str(path)) as store:
        [workload] = store.workloads("alexnet", batch_size=32, dtype="float32")
        measured = store.measured(published.DEVICE, "graph")
        board = {found.key: found.board for found in measured}[workload.key]
        kinds = {c.key: c.kind for c in workload.occurrences()}
        for visit in store.visits(board, list(kinds)):
            if visit.outcome != "ok" or visit.role != "measurement":
                continue
            if visit.stretch is not None:
                store.save_visit(twice_as_slow(visit, "reused"))
                if kinds[visit.configuration] == "linear":
                    store.save_visit(twice_as_slow(visit, "streamed"))
            else:
                store.save_visit(replace(visit, id=f"reused-{visit.id}", access="reused"))
    return path


def rows_of(store: Store, *names: str) -> dict[Access, Row]:
    found = compare(store, choose_device(store, None), names)
    return {r.access: r for r in found if r.batch_size == 32 and r.dtype == "float32"}


def test_each_workload_is_held_against_the_run(database: Path) -> None:
    with open_store(str(database)) as store:
        rows = rows_of(store, "alexnet")
    assert set(rows) == {"model", "reused", "streamed"}, "no chain was measured"
    model, reused, streamed = rows["model"], rows["reused"], rows["streamed"]
    assert model.own_calls == model.own_time == reused.own_calls == reused.own_time == 1
    assert model.time_ratio is not None and model.time_ratio == pytest.approx(1, abs=0.05)
    assert reused.time_ratio == pytest.approx(2 * model.time_ratio, rel=1e-3)
    assert model.energy_ratio is not None and model.energy_ratio == pytest.approx(1, abs=0.05)
    assert reused.energy_ratio == pytest.approx(2 * model.energy_ratio, rel=1e-2)
    assert 0 < streamed.own_calls < streamed.own_time < 1, "the rest is filled in"
    assert streamed.time_ratio is not None and reused.time_ratio is not None
    assert model.time_ratio < streamed.time_ratio < reused.time_ratio
    assert reused.utilization == pytest.approx(0.9)
    assert streamed.utilization == pytest.approx(0.9)
    assert model.utilization is not None and 0.95 < model.utilization <= 1


def test_utilization_is_weighted_by_time() -> None:
    assert weighted({"a": 3.0, "b": 1.0, "c": 9.0}, {"a": 1.0, "b": 0.2}) == pytest.approx(0.8)
    assert weighted({"a": 1.0}, {}) is None


def test_medians_are_of_each_workload(database: Path) -> None:
    with open_store(str(database)) as store:
        rows = compare(store, choose_device(store, None), ["alexnet"])
    found = medians(rows)
    assert set(found) == {"model", "reused", "streamed"} < set(ACCESSES)
    assert found["model"]["time"] == pytest.approx(0.01, abs=0.05)
    assert found["reused"]["time"] == pytest.approx(1, abs=0.1)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_the_table(database: Path) -> None:
    done = run("alexnet", "--db", str(database))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if " reused " in line and "100.0%" in line]
    assert "reused: median error, time" in done.stdout


def test_a_model_that_was_not_measured_is_one_message(database: Path) -> None:
    done = run("lenet", "--db", str(database))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "workloads: no model was measured with --mode graph\n"
