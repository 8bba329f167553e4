"""`opdb bench` on the processor, also as a process that is killed, interrupted and starved."""

from __future__ import annotations

import json
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opdb.bench.plan import MAX_REDONE
from opdb.derive.costs import is_rejected
from opdb.records import Call, Configuration, Workload
from opdb.store import open_store
from tests import warm
from tests.cli.conftest import Opdb, snapshot

ROOT = Path(__file__).parents[2]
IMAGE = {"shape": [1, 4, 8, 8], "dtype": "float32"}
CALLS = (
    Configuration("relu", {}, {"input": IMAGE}),
    Configuration("add", {"inplace": True}, {"input": IMAGE, "other": IMAGE}),
    Configuration("linear", {}, {
        "input": {"shape": [4, 16], "dtype": "float32"},
        "weight": {"shape": [8, 16], "dtype": "float32", "role": "weight"},
    }),
)  # fmt: skip
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")


def harvested(path: Path) -> Path:
    """Make a database with one small workload, as a harvest leaves it."""
    calls = tuple(Call(c, "function") for c in CALLS)
    inputs = {"args": [IMAGE], "kwargs": {}}
    with open_store(str(path)) as store:
        store.save_workload(
            Workload("made", "builtin", "0", inputs, 1, "float32", "contiguous", calls=calls)
        )
    return path


@pytest.fixture
def database(tmp_path: Path, opdb: Opdb) -> Path:
    """The database of `opdb`: harvested, nothing measured."""
    return harvested(tmp_path / "opdb.sqlite")


def start(
    database: Path, *options: str, preexec: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Start a bench; `preexec` is called in a process that then starts Python."""
    bench = ("-m", "opdb", "bench", "--device", "cpu", "--db", str(database), *options)
    return subprocess.Popen(
        [sys.executable, *bench] if preexec else warm.command(*bench),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=preexec,
    )


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
    """Return how many configurations of a database (a path, a URL) have all their visits.

    That is two which count, or as many as a busy machine may spoil before the bench gives up.
    """
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


def test_a_killed_bench_loses_no_visit_and_the_next_run_goes_on(database: Path) -> None:
    kept: list[tuple[str, str, str]] = []
    for at_least in (0, 1, 4):
        process = start(database)
        if at_least:
            when(lambda wanted=at_least: len(visits(database)) >= wanted, process)  # type: ignore[misc]
        else:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("calibrating ")
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
            c.key: 2 for c in CALLS
        }


def test_ctrl_c_is_one_line_and_keeps_the_visits(database: Path) -> None:
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
        assert sum(c.visits for [c] in store.costs(board.uuid).values()) == len(stored)


@pytest.mark.usefixtures("short")
def test_a_disk_that_fills_up_is_one_message_and_keeps_the_visits(
    opdb: Opdb, database: Path
) -> None:
    with open_store(str(database)) as store:
        many = tuple(
            Call(Configuration("relu", {}, {"input": {"shape": [n], "dtype": "float32"}}), "module")
            for n in range(1, 12)
        )
        inputs = {"args": [IMAGE], "kwargs": {}}
        store.save_workload(
            Workload("more", "builtin", "0", inputs, 1, "float32", "contiguous", calls=many)
        )

    def starve() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (130_000, 130_000))

    process = start(database, "--quiet", "--duplicates", "0", preexec=starve)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, (out, err)
    assert len(err.splitlines()) == 1 and "Traceback" not in err
    assert err.startswith(f"opdb: database {database}: ") and " disk" in err
    kept = visits(database)
    assert {outcome for _, _, outcome in kept} == {"ok"}
    ran = opdb("bench", "--device", "cpu", "--quiet", "--duplicates", 0)
    assert ran.status == 0, ran.err
    assert visits(database)[: len(kept)] == kept
    assert measured(database) == len(many) + len(CALLS)


@pytest.mark.usefixtures("short")
def test_bench_says_what_it_did(opdb: Opdb, database: Path) -> None:
    ran = opdb("bench", "--device", "cpu", "--json")
    assert ran.status == 0
    found = json.loads(ran.out)
    assert found["outcomes"] == {"ok": found["visits"]} and found["visits"] == len(visits(database))
    assert (found["configurations"], measured(database), found["stopped"]) == (3, 3, None)
    assert 0 < found["device_time_s"] <= found["elapsed_s"]
    lines = ran.err.splitlines()
    assert lines[0].startswith("calibrating ")
    assert re.match(r"bench (\d+)/\1 ", lines[-1]) and " a visit" in lines[-1]
    ran = opdb("bench", "--device", "cpu")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("nothing is pending on ")
    ran = opdb("bench", "--device", "cpu", "--json")
    assert json.loads(ran.out)["visits"] == 0


@pytest.mark.usefixtures("short")
def test_kinds_choose_and_quiet_is_quiet(opdb: Opdb, database: Path) -> None:
    ran = opdb("bench", "relu", "linear", "--device", "cpu", "--quiet")
    assert (ran.status, ran.err) == (0, "")
    assert "2 configurations, visits: 4 ok" in ran.out
    assert {kind for _, kind, _ in visits(database)} == {"relu", "linear"}


@pytest.mark.usefixtures("short")
def test_another_workload_is_benched_apart(opdb: Opdb, database: Path) -> None:
    for _ in range(2):
        ran = opdb("bench", "relu", "--device", "cpu", "--cache-state", "reused", "--json")
        assert ran.status == 0
    assert json.loads(ran.out)["visits"] == 0, "nothing is pending any more"
    ran = opdb("bench", "relu", "--device", "cpu", "--json")
    assert json.loads(ran.out)["visits"] == 2, "a model's calls are"


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


@pytest.mark.usefixtures("short")
def test_a_failure_is_told_as_it_happens_and_is_no_failure_of_the_bench(
    opdb: Opdb, database: Path
) -> None:
    huge = Configuration("relu", {}, {"input": {"shape": [2**44], "dtype": "float32"}})
    with open_store(str(database)) as store:
        inputs = {"args": [IMAGE], "kwargs": {}}
        calls = (Call(huge, "module"),)
        store.save_workload(
            Workload("huge", "builtin", "0", inputs, 1, "float32", "contiguous", calls=calls)
        )
    ran = opdb("bench", "relu", "--device", "cpu")
    assert ran.status == 0
    assert "relu: out_of_memory: " in ran.err
    assert "out_of_memory" in ran.out and "2 ok" in ran.out


CANNOT = [
    (["bench", "--device", "cuda"], 3, "no CUDA device for --device cuda"),
    (["bench", "--device", "cuda:7"], 3, "no CUDA device for --device cuda:7"),
    (["bench", "relu", "--device", "cuda", "--db", "none.sqlite"], 3, "use --device cpu"),
    (["measure", "mlp", "--device", "cuda"], 3, "no CUDA device for --device cuda"),
    (["measure", "mlp", "--mode", "graph", "--device", "cpu"], 3, "mode 'graph' needs a CUDA"),
]
BAD = [
    (["bench", "--device", "tpu"], 2, "cannot measure on 'tpu'; use 'cuda', 'cuda:N' or 'cpu'"),
    (["bench", "--device", "cuda:x"], 2, "cannot measure on 'cuda:x'"),
    (["bench", "conv3", "--device", "cpu"], 2, "unknown kind 'conv3'; did you mean 'conv3d'"),
    (
        ["bench", "--cache-state", "steamed"],
        2,
        "unknown --cache-state 'steamed'; did you mean 'streamed'",
    ),
    (["bench", "--device", "cpu", "--max-seconds", "0"], 2, "--max-seconds"),
    (["bench", "--device", "cpu", "--max-seconds", "soon"], 2, "--max-seconds"),
    (["bench", "--device", "cpu", "--db", "none.sqlite"], 2, "database none.sqlite: there is none"),
    (["bench", "--device", "cpu", "--db", "empty.sqlite"], 2, "holds no workload"),
    (["bench", "--device", "cpu", "--db", "text.sqlite"], 2, "it is not an SQLite file"),
    (["bench", "--device", "cpu", "--db", "cut.sqlite"], 2, "cut.sqlite: it is truncated"),
    (["bench", "--device", "cpu", "--db", "foreign.sqlite"], 2, "it is not an opdb database"),
    (["bench", "--device", "cpu", "--db", "newer.sqlite"], 2, "its schema 99 is not the one"),
    (["measure", "resnet81"], 2, "unknown model 'resnet81'; did you mean"),
    (["measure", "mlp", "--device", "tpu"], 2, "cannot measure on 'tpu'"),
    (["measure", "mlp", "--mode", "grpah"], 2, "unknown --mode 'grpah'; did you mean 'graph'"),
    (["measure", "mlp", "--mode", "jit"], 2, "unknown --mode 'jit'; valid: compile, compile:max-"),
    (["measure", "mlp", "--dtype", "int3"], 2, "unknown --dtype 'int3'"),
    (["measure", "mlp", "--batch-size", "0"], 2, "--batch-size"),
    (["measure", "mlp", "--repeats", "0"], 2, "--repeats"),
    (["measure", "none.yml"], 2, "none.yml: no such file"),
    (["measure"], 2, "Missing argument 'MODEL'"),
]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [*(pytest.param(*case, marks=no_gpu) for case in CANNOT), *BAD],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_message_and_changes_nothing(
    opdb: Opdb, database: Path, tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    Path("text.sqlite").write_text("nothing of ours")
    Path("cut.sqlite").write_bytes(database.read_bytes()[:5000])
    for name, statement in (
        ("foreign", "CREATE TABLE song (title TEXT)"),
        ("newer", "UPDATE opdb_schema SET number = 99"),
    ):
        if name == "newer":
            Path("newer.sqlite").write_bytes(database.read_bytes())
        with sqlite3.connect(f"{name}.sqlite") as connection:
            connection.execute(statement)
        connection.close()
    with open_store("empty.sqlite"):
        pass
    before = snapshot(tmp_path)
    ran = opdb(*arguments)
    assert (ran.status, ran.out) == (status, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
    message = ran.err.strip().splitlines()
    assert len(message) == 1 or message[0].startswith("Usage: ")
    assert snapshot(tmp_path) == before


@no_gpu
@pytest.mark.parametrize("command", ["bench", "measure mlp", "build mlp"])
def test_a_processor_is_measured_only_where_it_is_named(command: str, opdb: Opdb) -> None:
    found = opdb(*command.split())
    assert found.status == 3 and not Path("opdb.sqlite").exists()
    assert "no NVIDIA GPU here" in found.err and "add --device cpu" in found.err


def test_an_algorithm_is_refused_where_there_is_no_gpu(database: Path, opdb: Opdb) -> None:
    found = opdb(
        "bench", "conv2d", "--device", "cpu", "--algorithm", "fft", "--algorithm", "winograd"
    )
    assert found.status == 3
    assert "'fft', 'winograd' need an NVIDIA GPU; here there is 'default' alone" in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algorithm", "winogard"), "did you mean 'winograd'"),
        (("--algorithm", "fastest"), "implicit precomp gemm"),
        (("relu", "--algorithm", "fft"), "opdb bench conv2d, not relu"),
    ],
)
def test_a_mistake_about_algorithms_is_one_message(
    arguments: tuple[str, ...], said: str, database: Path, opdb: Opdb
) -> None:
    found = opdb("bench", *arguments)
    assert found.status == 2 and said in found.err
    assert found.err.count("\n") == 1
