"""Eight jobs, each with a database of its own, merged: nothing lost, nothing twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from opdb.store import Store, open_store
from tests.cli.conftest import Opdb, opdb  # noqa: F401
from tests.store import samples

ROOT = Path(__file__).parents[2]

WRITER = """
import os, signal, sys
from dataclasses import replace
from opdb.store import open_store
from tests.store import samples
from tests.store.conftest import fill
number = int(sys.argv[2])
store = open_store(sys.argv[1])
fill(store)  # as a copy of one database that all began as
campaign = f"campaign of {number}"
# Two jobs may come to the same board, one after the other.
store.save_campaign(samples.campaign(campaign, f"GPU-{number // 2}"))
for visit in range(20):
    store.save_visit(samples.visit(f"{number}-{visit}", campaign=campaign))
    if number == 3 and visit == 11:
        os.kill(os.getpid(), signal.SIGKILL)
run = samples.model_run(samples.workload(), f"run {number}")
store.save_model_run(replace(run, campaign=campaign))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of eight shards, written at once; the writer of one was killed."""
    folder = tmp_path_factory.mktemp("jobs")
    paths = [folder / f"shard-{number}.sqlite" for number in range(8)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)], cwd=ROOT)
        for number, path in enumerate(paths)
    ]
    ended = [writer.wait(timeout=120) for writer in writers]
    assert ended == [0, 0, 0, -9, 0, 0, 0, 0]
    return folder


@pytest.fixture
def shards(written: Path, tmp_path: Path) -> list[Path]:
    shutil.copytree(written, tmp_path / "jobs")
    return sorted((tmp_path / "jobs").glob("*.sqlite"))


def assert_merged(store: Store) -> None:
    visits = [visit.id for board in store.boards() for visit in store.visits(board.uuid)]
    expected = [f"{number}-{visit}" for number in range(8) for visit in range(20)]
    lost = {f"3-{visit}" for visit in range(12, 20)}
    assert Counter(visits) == Counter({*expected, "visit-1", "visit-2", "visit-3"} - lost)
    runs = [run.id for run in store.model_runs()]
    assert Counter(runs) == Counter({"run-1", *(f"run {n}" for n in range(8) if n != 3)})
    counted = store.outcomes("nvidia-h200")[samples.CONV.key, "default"]
    assert counted == Counter(ok=160 - 8 + 1)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "all.sqlite")


def test_eight_shards_are_merged_and_twice_is_once(
    shards: list[Path],
    target: str,
    opdb: Opdb,  # noqa: F811
) -> None:
    first = opdb("import", *shards, "--db", target, "--json")
    assert first.status == 0, first.err
    added = [each["added"]["visits"] for each in json.loads(first.out)["imports"]]
    assert added == [23, 20, 20, 12, 20, 20, 20, 20]
    with open_store(target) as store:
        assert_merged(store)
        # Boards 0 to 3 had the visits of two jobs each: their costs rest on all of them.
        costs = store.costs("GPU-2")[samples.CONV.key]
        assert [cost.visits for cost in costs if cost.estimator != "1"] == [40]
    second = opdb("import", *reversed(shards), "--db", target)
    assert second.status == 0, second.err
    assert "8 imported into" in second.out
    with open_store(target) as store:
        assert_merged(store)


def test_a_shard_that_is_damaged_stops_no_other(
    shards: list[Path],
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    content = shards[0].read_bytes()
    shards[0].write_bytes(content[: len(content) // 2])
    (tmp_path / "jobs" / "shard-0.sqlite-wal").unlink(missing_ok=True)
    target = tmp_path / "all.sqlite"
    ran = opdb("import", shards[0], shards[1], tmp_path / "nowhere.sqlite", "--db", target)
    assert ran.status == 2 and "Traceback" not in ran.err
    assert "shard-0.sqlite: it is damaged" in ran.err
    assert "nowhere.sqlite: there is none" in ran.err
    with open_store(str(target)) as store:
        assert len(store.visits("GPU-0")) == 20
