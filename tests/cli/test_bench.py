"""`opdb bench` on the processor, also as a process that is killed, interrupted and starved."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from opdb.bench.plan import MAX_REDONE
from opdb.derive.costs import is_rejected
from opdb.records import Configuration
from opdb.store import open_store
from tests.bench.calls import ADD_IN_PLACE, RELU, workload
from tests.cli.conftest import Opdb, read

ROOT = Path(__file__).parents[2]
WEIGHT = {"shape": [8, 16], "dtype": "float32", "role": "weight"}
INPUT = {"shape": [4, 16], "dtype": "float32"}
CALLS = (RELU, ADD_IN_PLACE, Configuration("linear", {}, {"input": INPUT, "weight": WEIGHT}))
# More than a bench has done when a busy machine gets round to ending it.
TEN = (*CALLS, *(Configuration("relu", {}, {"input": INPUT | {"shape": [n]}}) for n in range(2, 9)))


def harvested(path: Path, calls: tuple[Configuration, ...] = CALLS) -> Path:
    with open_store(str(path)) as store:
        store.save_workload(workload(*calls))
    return path


@pytest.fixture
def database(tmp_path: Path, opdb: Opdb) -> Path:
    return harvested(tmp_path / "opdb.sqlite")


def start(database: Path, *options: str) -> subprocess.Popen[str]:
    bench = ("-m", "opdb", "bench", "--device", "cpu", "--db", str(database), *options)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *bench], stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def visits(database: Path) -> list[tuple[str, str, str]]:
    """Return (id, configuration, outcome) of every visit, oldest first."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = connection.execute(
            "SELECT visit.id, configuration.kind, outcome FROM visit "
            "JOIN configuration ON configuration.id = configuration_id ORDER BY visit.rowid"
        ).fetchall()
    connection.close()
    return found


def measured(database: Path | str) -> int:
    """Return how many configurations have two good visits, or too many spoiled ones."""
    with open_store(str(database)) as store:
        [board] = store.boards()
        stored = store.visits(board.uuid)
    good = Counter(v.configuration for v in stored if not is_rejected(v))
    spoiled = Counter(v.configuration for v in stored if is_rejected(v))
    return sum(good[key] == 2 or spoiled[key] > MAX_REDONE for key in good | spoiled)


def when(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end_s = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.mark.slow
def test_a_killed_bench_loses_no_visit_and_the_next_run_goes_on(tmp_path: Path) -> None:
    database = harvested(tmp_path / "opdb.sqlite", TEN)
    kept: list[tuple[str, str, str]] = []
    for at_least in (0, 1, 4):
        process = start(database)
        if at_least:
            when(lambda wanted=at_least: len(visits(database)) >= wanted, process)  # type: ignore[misc]
        else:
            assert process.stderr is not None
            assert " to measure on " in process.stderr.readline()
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        now = visits(database)
        assert now[: len(kept)] == kept, "what was finished before is there"
        assert len(now) >= at_least
        kept = now
    process = start(database, "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = visits(database)
    assert found[: len(kept)] == kept
    assert {outcome for *_, outcome in found} == {"ok"}
    assert json.loads(out)["visits"] == len(found) - len(kept)
    with open_store(str(database)) as store:
        [board] = store.boards()
        # Of good ones: a visit that a busy machine spoils is made again.
        assert {key: cost.visits for key, [cost] in store.costs(board.uuid).items()} == {
            c.key: 2 for c in TEN
        }


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_keeps_the_visits(tmp_path: Path) -> None:
    database = harvested(tmp_path / "opdb.sqlite", TEN)
    process = start(database)
    when(lambda: len(visits(database)) >= 2, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "opdb: interrupted; what was finished is stored"
    assert "Traceback" not in err and out == ""
    with open_store(str(database)) as store:
        [board] = store.boards()
        stored = store.visits(board.uuid)
        assert len(stored) >= 2 and {v.outcome for v in stored} == {"ok"}
        visited = [v for v in stored if v.role == "measurement"]  # duplicates are no part of costs
        costs = {key: cost.visits for key, [cost] in store.costs(board.uuid).items()}
        assert costs.keys() == {v.configuration for v in visited}
        good = Counter(v.configuration for v in visited if not is_rejected(v))
        assert good.items() <= costs.items()


@pytest.mark.usefixtures("short")
def test_bench_says_what_it_did(opdb: Opdb, database: Path) -> None:
    ran = opdb("bench", "--device", "cpu", "--json")
    assert ran.status == 0
    found = json.loads(ran.out)
    assert found["outcomes"] == {"ok": found["visits"]} and found["visits"] == len(visits(database))
    assert (found["configurations"], measured(database), found["stopped"]) == (3, 3, None)
    assert 0 < found["device_time_s"] <= found["elapsed_s"]
    lines = ran.err.splitlines()
    assert lines[0].startswith("3 configurations to measure on ")
    assert re.match(r"bench (\d+)/\1 ", lines[-1])
    ran = opdb("bench", "--device", "cpu")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("nothing is pending on ")
    assert opdb.json("bench", "--device", "cpu")["visits"] == 0


def test_time_that_is_up_is_said(
    opdb: Opdb, database: Path, request: pytest.FixtureRequest
) -> None:
    ran = opdb("bench", "--device", "cpu", "--max-seconds", 2)
    assert ran.status == 0
    assert "stopped early: the time given, 2 s, is up; run it again to go on" in ran.out
    assert len(visits(database)) < 6
    request.getfixturevalue("short")
    again = opdb("bench", "--device", "cpu")
    assert again.status == 0
    # What a busy processor spoiled is kept, and made again.
    spoiled = re.findall(r"rejected and kept: (\d+)", ran.out + again.out)
    assert 6 <= len(visits(database)) <= 6 + sum(map(int, spoiled))


MLP = ("--model", "mlp", "-b", 3)


def costed(path: Path) -> set[str]:
    with open_store(str(path)) as store:
        keys = [c.key for c in store.configurations()]
        return {key for board in store.boards() for key in store.costs(board.uuid, keys)}


def called(path: Path, name: str) -> set[str]:
    with open_store(str(path)) as store:
        return {c.key for workload in store.workloads(name) for c in workload.occurrences()}


@pytest.mark.usefixtures("short")
def test_what_a_model_lacks_is_harvested_and_measured_alone(opdb: Opdb, tmp_path: Path) -> None:
    database = tmp_path / "opdb.sqlite"
    assert opdb("harvest", "lstm", "--quiet").status == 0
    ran = opdb("bench", *MLP, "--device", "cpu")
    assert ran.status == 0, ran.err
    assert "4 configurations to measure on " in ran.err
    assert costed(database) == called(database, "mlp")
    predicted = opdb.read("predict", "mlp", "-b", 3)
    assert predicted["coverage"]["calls"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_few_steps_of_a_generation_are_benched_and_the_others_interpolated(opdb: Opdb) -> None:
    pytest.importorskip("transformers")
    name = "tests.models.decoders:llama"
    sizes = ("--phase", "generate", "--input-size", 9, "--max-new-tokens", 30)
    asked, once = (*sizes, "--cache", "dynamic"), ("--rounds", 1, "--duplicates", 0)
    benched = opdb.read("bench", "--model", name, *asked, "--device", "cpu", *once)
    model = benched["model"]
    assert benched["configurations"] == model["benched"] < model["configurations"] - 50
    found = opdb.read("predict", name, *asked, "--mode", "eager")
    assert found["missing"] == []
    between = [note for note in found["notes"] if "between measured sizes" in note]
    assert len(between) == 1
    assert found["time_s_low"] is not None
    assert opdb("measure", name, *asked, "--device", "cpu", "--mode", "eager").status == 0
    held = opdb.read("validate")
    assert [row["model"] for row in held["rows"]] == [name]
    ran = opdb("bench", "--device", "cpu", *once, "--json")
    assert read(ran.out)["visits"] == 0, "nor is anything else pending"
