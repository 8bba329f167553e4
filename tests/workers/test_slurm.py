"""A job's files, states and command, and what is given to Slurm, with scripts in Slurm's place."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opdb import workers as submitting
from opdb.bench.plan import MAX_REDONE
from opdb.commands.submit import ResourceArguments, parts_of
from opdb.errors import CannotMeasureError, InputError, UnknownNameError
from opdb.harvest.passes import harvest
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.store.claims import held
from opdb.store.database import as_url
from opdb.workers import (
    Job,
    jobs_of,
    read_state,
    submit,
)
from tests import slurm
from tests.cli.conftest import Opdb
from tests.paths import python_path


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Let SIGTERM do nothing until a job listens to it, and put back what it did."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def script(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def opdb_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder; what `opdb` is there is the script in it that stands for Python."""
    monkeypatch.setattr(submitting, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    return tmp_path


def test_a_job_runs_its_command_and_keeps_what_became_of_it(
    opdb_is: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(opdb_is, "python", 'echo "$@ on $OPDB_DB"', "echo wrong >&2", "exit ${STATUS:-0}")
    job = Job("a job", ("bench", "conv2d"), str(opdb_is), "sqlite:///x")
    assert job() == 0
    said = "-m opdb bench conv2d on sqlite:///x\nwrong\n"
    assert job.log.read_text() == said
    known = {"name": "a job", "job": "42", "command": ["bench", "conv2d"], "log": str(job.log)}
    assert read_state(job.state) == known | {"exit_status": 0}
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(InputError, match=r"opdb ended with exit status 3; see .*a job.log"):
        job()
    assert read_state(job.state) == known | {"exit_status": 3}
    assert job.log.read_text() == 2 * said


def test_a_shard_begins_as_a_copy_and_stays(opdb_is: Path) -> None:
    script(opdb_is, "python", "exit 0")
    base = opdb_is / "base.db"
    base.write_text("a database")
    job = Job("a", ("show",), str(opdb_is), "sqlite:///x", str(base))
    job()
    assert job.shard.read_text() == "a database"
    assert not list(opdb_is.glob("*.part"))
    job.shard.write_text("more")
    job()
    assert job.shard.read_text() == "more"
    without = Job("b", ("show",), str(opdb_is), "sqlite:///x")
    without()
    assert not without.shard.exists()


PYTHON = """
trap 'echo told; exit 130' TERM
kill -USR1 $$
kill -USR2 $$
while true; do kill -TERM $PPID; sleep 0.02; done
"""


def test_a_job_that_is_told_to_stop_tells_its_command(opdb_is: Path) -> None:
    """And the warnings that Slurm sends to all of a job's processes end neither."""
    script(opdb_is, "python", PYTHON)
    job = Job("a", ("bench",), str(opdb_is), "sqlite:///x")
    assert job() == 130
    assert job.log.read_text() == "told\n" and read_state(job.state)["exit_status"] == 130


def test_a_command_does_not_outlive_its_job(opdb_is: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a time-out ends the wait it is told to stop."""
    script(opdb_is, "python", "trap 'exit 3' TERM", "echo $$", "while true; do sleep 0.02; done")
    running: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if not running:
                running.append(self)
                while not (opdb_is / "a.log").read_text():
                    pass
                raise TimeoutError("its time is up")
            return super().wait(timeout)

    monkeypatch.setattr("opdb.workers.subprocess.Popen", Interrupted)
    job = Job("a", ("bench",), str(opdb_is), "sqlite:///x")
    with pytest.raises(TimeoutError):
        job()
    assert running[0].returncode == 3
    assert not job.state.exists(), "it has not ended"


# Slurm


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of scripts that answer as Slurm's commands do; what sbatch was given is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder, "sbatch", f'cp "$1" "{folder}/given"', "echo job 77")
    script(folder, "srun", "exit 0")
    script(folder, "squeue", f'echo "$@" >{folder}/asked', "echo '77_0 RUNNING'", "echo odd")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def given_to_slurm(folder: Path, *names: str) -> list[Job]:
    return [
        Job(name, ("bench", name), str(folder), as_url(str(folder / f"{name}.sqlite")))
        for name in names
    ]


RESOURCES = ResourceArguments("main", cpus=4, time="90", setup=["module load cuda"])
GIVEN = RESOURCES.parameters("several"), 3


def test_jobs_are_given_as_one_array(cluster: Path, tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    elsewhere = Job("c", ("bench", "c"), str(folder), "postgresql://server/x")
    jobs = [*given_to_slurm(folder, "a", "b"), elsewhere]
    assert submit(jobs, *GIVEN) == ["77_0", "77_1", "77_2"]
    [a, b, c] = submitting.read_jobs(sorted(folder.glob("*.json")))
    assert a == {
        "name": "a",
        "state": "running",
        "job": "77_0",
        "command": ["bench", "a"],
        "log": str(folder / "a.log"),
        "exit_status": None,
    }
    assert [(each["job"], each["state"]) for each in (b, c)] == [("77_1", "lost"), ("77_2", "lost")]
    given = (cluster / "given").read_text()
    for line in ("partition=main", "cpus-per-task=4", "time=90", "job-name=several"):
        assert f"#SBATCH --{line}" in given
    assert "#SBATCH --array=0-2%" in given and "signal=USR2@120" in given
    assert "module load cuda" in given
    assert stat.S_IMODE((folder / "submitit").stat().st_mode) == 0o700
    assert (cluster / "asked").read_text() == "--noheader --array --format=%i %T\n"
    assert submitting.queue() == {"77_0": "running"}
    for job, status in ((jobs[1], 130), (jobs[2], 2)):
        job.write_state("77", status)
    states = [each["state"] for each in submitting.read_jobs(sorted(folder.glob("*.json")))]
    assert states == ["running", "stopped", "failed"]


def test_what_is_at_work_is_not_given_again(cluster: Path, tmp_path: Path) -> None:
    jobs_here = given_to_slurm(tmp_path, "a", "b")
    for job, number in zip(jobs_here, ("77_0", "77_1"), strict=True):
        job.write_state(number)
    with pytest.raises(InputError, match=r"^a: still at work"):
        submit(jobs_here, *GIVEN)
    assert submit(jobs_here[1:], *GIVEN) == ["77"]


# Commands


def test_each_job_has_a_database_of_its_own_or_the_servers(tmp_path: Path) -> None:
    folder, database = tmp_path / "deep" / "jobs", tmp_path / "opdb.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
    commands = [("bench", "a"), ("bench", "b")]
    planned = jobs_of(commands, folder, str(database), make=False)
    assert not folder.exists() and [job.base for job in planned] == [None, None]
    a, b = jobs_of(commands, folder, str(database), make=True)
    assert (a.name, a.command, a.folder) == ("bench-a", ("bench", "a"), str(folder))
    assert a.base == b.base == str(folder / "base.db") and (folder / "base.db").exists()
    assert a.database == as_url(str(a.shard)) != b.database
    server = "postgresql+psycopg://user@server/opdb"
    [alone] = jobs_of(commands[:1], folder, server, make=True)
    assert alone.base is None and alone.database is not None and "server/opdb" in alone.database
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPDB_DB", server)
        [named] = jobs_of(commands[:1], folder, None, make=True)
    assert named.database is None and named.base is None, "no password is written"
    with pytest.raises(InputError, match="two jobs would have one name"):
        jobs_of([("a", "b"), ("a-b",)], folder, str(database), make=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--folder .*file/jobs: Not a directory"):
        jobs_of(commands, tmp_path / "file" / "jobs", str(database), make=True)


@pytest.fixture(scope="module")
def started() -> Iterator[slurm.Slurm]:
    if (why := slurm.missing()) is not None:
        pytest.skip(why)
    with slurm.slurm() as running:
        yield running


@pytest.fixture
def real_slurm(started: slurm.Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[slurm.Slurm]:
    """Slurm, found by what runs in this process; nothing of a job is left at the end."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, started.environment[name])
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield started
    if started.states():
        started.run("scancel", "--user=root")
        started.wait_until_empty()


def states(folder: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in submitting.read_jobs(sorted(folder.glob("*.json")))}


def wait_for(what: Callable[[], bool], logs: Callable[[], str], seconds: float = 150.0) -> None:
    until_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until_s, logs()
        time.sleep(0.1)


# What a command comes to, and what is said where there is no Slurm


def test_what_is_no_command_is_told_at_once(opdb: Opdb) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sweep'"):
        parts_of(["sweeep", "vgg16"])
    with pytest.raises(UnknownNameError, match="unknown algorithm 'fftt'"):
        parts_of(["sweep", "vgg16", "--algorithm", "fftt"])
    with pytest.raises(InputError, match="give --db to opdb submit"):
        parts_of(["bench", "--db", "x.sqlite"])
    for arguments in (["sweep", "vgg16", "--no-such"], ["sweep", "vgg16", "--batch-size", "many"]):
        ran = opdb("submit", "slurm", "--", *arguments)
        assert ran.status == 2 and "opdb sweep" in ran.err
    assert opdb("submit", "slrum", "--", "bench").status == 2
    assert opdb("submit", "slurm", "--time", "soon", "--", "bench").status == 2
    assert not Path("slurm").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("24:00:00", 1440),
        ("1:30", 2),
        ("1:30:01", 91),
        ("1-2:3:4", 1564),
    ],
)
def test_times_are_slurms(text: str, expected: int) -> None:
    assert submitting.minutes(text) == expected


def test_without_sbatch_one_message_says_so(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = opdb("submit", "slurm", "--gres", "gpu:1", "--", "measure", "alexnet")
    assert ran.status == 3 and ran.err.startswith("opdb: sbatch and srun not found")
    assert len(ran.err.splitlines()) == 1 and not Path("slurm").exists()
    with pytest.raises(CannotMeasureError):
        submitting.check_slurm()
    assert submitting.queue() is None


# On a Slurm


@pytest.mark.slow
def test_an_array_of_models_each_with_its_shard(
    real_slurm: slurm.Slurm, opdb: Opdb, tmp_path: Path
) -> None:
    database = tmp_path / "opdb.sqlite"
    with open_store(str(database)) as store:
        store.save_workload(harvest(ModelSpec("mlp")))
    asked = ["--partition", "main", "--constraint", "small", "--mem", "1G", "--cpus", "1"]
    asked += ["--time", "0:10:00", "--setup", "export FROM_SETUP=yes", "--folder", "jobs"]
    command = ["measure", "mlp", "lstm", "nonsuch", "--device", "cpu", "--repeats", "1"]
    ran = opdb("submit", "slurm", *asked, "--", *command)
    assert ran.status == 0, ran.err
    assert "opdb show jobs jobs follows them" in ran.out
    again = opdb("submit", "slurm", *asked, "--", *command)
    assert again.status == 2 and "still at work" in again.err
    real_slurm.wait_until_empty(300)
    found = states(Path("jobs"))
    tail = "-device-cpu-repeats-1"
    assert {name: state["state"] for name, state in found.items()} == {
        f"measure-mlp{tail}": "done",
        f"measure-lstm{tail}": "done",
        f"measure-nonsuch{tail}": "failed",
    }, "\n".join(path.read_text() for path in Path("jobs").glob("*.log"))
    assert {state["job"].partition("_")[2] for state in found.values()} == {"0", "1", "2"}
    failed = found[f"measure-nonsuch{tail}"]
    assert failed["exit_status"] == 2 and "nonsuch" in Path(failed["log"]).read_text()
    status = opdb("show", "jobs", "jobs")
    assert status.status == 0 and "2 done, 1 failed" in status.out and failed["log"] in status.out
    scripts = "".join(p.read_text() for p in Path("jobs/submitit").glob("*submission.sh"))
    for line in ("--partition=main", "--constraint=small", "--mem=1G", "--cpus-per-task=1"):
        assert f"#SBATCH {line}" in scripts
    assert "export FROM_SETUP=yes" in scripts

    shards = sorted(Path("jobs").glob("*.sqlite"))
    assert len(shards) == 3
    for _ in range(2):
        ran = opdb("import", *shards, "--db", database)
        assert ran.status == 0, ran.err
    with open_store(str(database)) as store:
        names = {workload.key: workload.name for workload in store.workloads()}
        assert sorted(names[run.workload] for run in store.model_runs()) == ["lstm", "mlp"]


@pytest.mark.slow
def test_a_job_that_is_requeued_loses_no_finished_visit(
    real_slurm: slurm.Slurm, opdb: Opdb, postgres_url: str
) -> None:
    with open_store(postgres_url) as store:
        store.save_workload(harvest(ModelSpec("alexnet", input_size=(3, 64, 64))))
    asked = ["--time", "30", "--folder", "jobs", "--db", postgres_url]
    ran = opdb("submit", "slurm", *asked, "--", "bench", "--device", "cpu", "--json")
    assert ran.status == 0, ran.err
    job = Job("bench-device-cpu-json", (), "jobs", None)

    def log() -> str:
        parts = [job.log.read_text()] if job.log.exists() else []
        parts += [p.read_text() for p in Path("jobs/submitit").glob("*_log.*")]
        return "\n".join([str(read_state(job.state)), *parts, real_slurm.logs()])

    with open_store(postgres_url) as store:

        def visits() -> list[str]:
            return [v.id for board in store.boards() for v in store.visits(board.uuid)]

        wait_for(lambda: len(visits()) >= 2, log)
        number = read_state(job.state)["job"]
        # What Slurm sends before a job's time is up, and submitit takes for a preemption too.
        real_slurm.run("scancel", "--signal=USR2", number)
        wait_for(lambda: held(store) == [], log)
        before = visits()
        assert held(store) == [], log()

        def runs_again() -> bool:
            # Slurm lets a requeued job wait two minutes; it may still be ending, too.
            command = ["scontrol", "update", f"JobId={number}", "StartTime=now"]
            subprocess.run(command, env=real_slurm.environment, capture_output=True, check=False)
            return len(visits()) > len(before)

        wait_for(runs_again, log)
        real_slurm.wait_until_empty(300)
        assert read_state(job.state)["exit_status"] == 0, log()
        after = visits()
        assert set(before) < set(after) and len(set(after)) == len(after)
        measured = store.devices()[0].slug
        made, rejected = store.outcomes(measured), store.outcomes(measured, rejected=True)
        # A visit that the CPU spoiled is made again, and kept beside the one that replaced it.
        spoiled = {key: min(rejected[key]["ok"], MAX_REDONE) for key in made if key in rejected}
        assert {counts["ok"] - spoiled.get(key, 0) for key, counts in made.items()} == {2}
        assert {key for key, _ in made} == {c.key for c in store.configurations_among(None, None)}


@pytest.mark.slow
def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opdb", "bench", "--device", "cpu", "-q"]
    environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
    database = str(tmp_path / "opdb.sqlite")
    with open_store(database) as store:
        store.save_workload(harvest(ModelSpec("alexnet", input_size=(3, 64, 64))))
        running = subprocess.Popen(
            [*command, "--db", database], env=environment, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: bool(held(store)), lambda: "it claims nothing")
        running.terminate()
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 130
        assert errors == "opdb: interrupted; what was finished is stored\n"
        assert held(store) == []
