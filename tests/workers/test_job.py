"""A job's files, states and command, and what is given to Slurm, with scripts in Slurm's place."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opdb import slurm as jobs
from opdb import slurm as submitting
from opdb.commands.submit import ResourceArguments
from opdb.errors import InputError
from opdb.slurm import (
    Job,
    jobs_of,
    name_of,
    read_state,
    snapshot,
    states_in,
    submit,
    write_state,
)
from opdb.store.database import as_url


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
    monkeypatch.setattr(jobs, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    return tmp_path


def test_a_job_runs_its_command_and_keeps_what_became_of_it(opdb_is: Path) -> None:
    script(opdb_is, "python", 'echo "$@ on $OPDB_DB"', "echo wrong >&2", "exit ${STATUS:-0}")
    job = Job("a job", ("bench", "conv2d"), str(opdb_is), "sqlite:///x")
    begun = datetime.now(UTC).replace(microsecond=0)
    assert job() == 0
    said = "-m opdb bench conv2d on sqlite:///x\nwrong\n"
    assert job.log.read_text() == said
    state = read_state(job.state)
    since = datetime.fromisoformat(state.pop("since"))
    assert begun <= since <= datetime.now(UTC)
    assert state == {
        "name": "a job",
        "state": "done",
        "job": "42",
        "host": socket.gethostname(),
        "runs": 1,
        "exit_status": 0,
        "log": str(opdb_is / "a job.log"),
    }
    write_state(job.state, state | {"command": ["bench"], "state": "stopped"})
    assert job() == 0
    state = read_state(job.state)
    assert (state["runs"], state["command"], state["state"]) == (2, ["bench"], "done")
    assert job.log.read_text() == 2 * said


def test_a_job_that_is_running_says_so(opdb_is: Path) -> None:
    script(opdb_is, "python", f'cp "{opdb_is}/a.json" "{opdb_is}/seen"')
    write_state(opdb_is / "a.json", {"state": "failed", "exit_status": 2, "runs": 1})
    Job("a", ("show",), str(opdb_is), "sqlite:///x")()
    state = json.loads((opdb_is / "seen").read_text())
    assert (state["state"], state["runs"], state["exit_status"]) == ("running", 2, None)


def test_a_job_told_to_stop_while_its_command_starts_stops_it(
    opdb_is: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(opdb_is, "python", "exec sleep 60")
    start: Any = subprocess.Popen

    def signalled(*command: object, **said: object) -> object:
        started: object = start(*command, **said)
        os.kill(os.getpid(), signal.SIGTERM)
        return started

    monkeypatch.setattr("subprocess.Popen", signalled)
    began_s = time.monotonic()
    with pytest.raises(InputError, match="exit status -15"):
        Job("a", ("show",), str(opdb_is), "sqlite:///x")()
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(("status", "state"), [(130, "stopped"), (2, "failed"), (1, "failed")])
def test_a_command_that_fails_fails_its_job(opdb_is: Path, status: int, state: str) -> None:
    script(opdb_is, "python", f"exit {status}")
    job = Job("a", ("show",), str(opdb_is), "sqlite:///x")
    if state == "failed":
        with pytest.raises(InputError, match=rf"exit status {status}; see .*a\.log"):
            job()
    else:
        assert job() == status
    found = read_state(job.state)
    assert (found["state"], found["exit_status"]) == (state, status)


def test_a_job_without_a_database_of_its_own_takes_the_nodes(
    opdb_is: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(opdb_is, "python", 'echo "$OPDB_DB"')
    job = Job("a", ("show",), str(opdb_is), None)
    monkeypatch.setenv("OPDB_DB", "")
    with pytest.raises(InputError, match="OPDB_DB is not set here"):
        job()
    monkeypatch.setenv("OPDB_DB", "postgresql://server/x")
    assert job() == 0 and job.log.read_text() == "postgresql://server/x\n"


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
    assert job.log.read_text() == "told\n"


@pytest.mark.parametrize(("trap", "ended"), [("exit 3", 0), (":", -9)])
def test_a_command_does_not_outlive_its_job(
    opdb_is: Path, monkeypatch: pytest.MonkeyPatch, trap: str, ended: int
) -> None:
    """Where a time-out ends the wait: it is told to stop, and killed if it does not."""
    script(opdb_is, "python", f"trap '{trap}' TERM", "echo $$", "while true; do sleep 0.02; done")
    monkeypatch.setattr(jobs, "STOPPED_WITHIN_S", 0.5)
    running: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if not running:
                running.append(self)
                while not (opdb_is / "a.log").read_text():
                    pass
                raise TimeoutError("its time is up")
            return super().wait(timeout)

    monkeypatch.setattr("opdb.slurm.subprocess.Popen", Interrupted)
    job = Job("a", ("bench",), str(opdb_is), "sqlite:///x")
    with pytest.raises(TimeoutError):
        job()
    assert running[0].returncode == (ended or 3)
    state = read_state(job.state)
    assert (state["state"], state["exit_status"]) == ("stopped", None)


def test_a_job_knows_its_number_in_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert jobs._number() is None
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    assert jobs._number() == "9"
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert jobs._number() == "7_0"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["bench", "--device", "cpu"], "bench-device-cpu"),
        (["a/b:c", "x y.z_1"], "a_b_c-x_y.z_1"),
        (["--", "..", "__"], "job"),
        (["é", "x"], "é-x"),
        (["a" * 100], "a" * 100),
    ],
)
def test_a_job_is_named_after_its_command(command: list[str], name: str) -> None:
    assert name_of(command) == name


def test_a_long_name_is_cut_and_told_apart() -> None:
    name = name_of(["a" * 101])
    assert len(name) == 100 and name.startswith("a" * 91 + "-")
    assert name != name_of(["a" * 102]) and name_of(["b" * 50, "b" * 51])[91:] != name[91:]


def test_states_are_read_whole_and_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no job"):
        states_in(tmp_path)
    for name in ("b", "a"):
        write_state(tmp_path / f"{name}.json", {"name": name, "state": "done"})
    (tmp_path / "a.part.json").write_text("{")
    assert [state["name"] for state in states_in(tmp_path)] == ["a", "b"]
    assert read_state(tmp_path / "none.json") == {}
    for content in ("{", "[]", '{"name": "a"}', '"state"'):
        (tmp_path / "c.json").write_text(content)
        with pytest.raises(InputError, match=r"c.json is not a job's state"):
            read_state(tmp_path / "c.json")


# Slurm


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of scripts that answer as Slurm's commands do; what sbatch was given is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder, "sbatch", f'cp "$1" "{folder}/given"', f"umask >{folder}/umask", "echo job 77")
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
    assert submit([*given_to_slurm(folder, "a", "b"), elsewhere], *GIVEN) == [
        "77_0",
        "77_1",
        "77_2",
    ]
    [a, b, c] = states_in(folder)
    assert a == {
        "name": "a",
        "state": "submitted",
        "job": "77_0",
        "command": ["bench", "a"],
        "log": str(folder / "a.log"),
        "shard": str(folder / "a.sqlite"),
        "runs": 0,
        "exit_status": None,
    }
    assert (b["job"], c["job"], c["shard"]) == ("77_1", "77_2", None)
    given = (cluster / "given").read_text()
    for line in ("partition=main", "cpus-per-task=4", "time=90", "job-name=several"):
        assert f"#SBATCH --{line}" in given
    assert "#SBATCH --array=0-2%" in given and "signal=USR2@120" in given
    assert "module load cuda" in given
    assert (cluster / "umask").read_text() == "0077\n" and os.umask(0o022) == 0o022
    assert stat.S_IMODE((folder / "submitit").stat().st_mode) == 0o700
    [job] = (each for each in submitting.jobs_in(folder) if each["name"] == "a")
    assert (job["state"], job["slurm"]) == ("submitted", "running")
    assert (cluster / "asked").read_text() == "--noheader --array --format=%i %T\n"
    assert submitting.queue() == {"77_0": "running"}
    states = {each["name"]: each["state"] for each in submitting.jobs_in(folder)}
    assert states == {"a": "submitted", "b": "lost", "c": "lost"}


def test_what_is_at_work_is_not_given_again(cluster: Path, tmp_path: Path) -> None:
    jobs_here = given_to_slurm(tmp_path, "a", "b")
    for name, number, state in (("a", "77_0", "running"), ("b", "77_1", "stopped")):
        command = ["bench", name]
        write_state(
            tmp_path / f"{name}.json",
            {"name": name, "state": state, "job": number, "command": command},
        )
    with pytest.raises(InputError, match=r"^a: still at work"):
        submit(jobs_here, *GIVEN)
    assert submit(jobs_here[1:], *GIVEN) == ["77"]
    script(cluster, "squeue", "exit 1")
    assert submitting.queue() is None
    write_state(tmp_path / "b.json", read_state(tmp_path / "b.json") | {"state": "stopped"})
    with pytest.raises(InputError, match=r"^a, b: still at work"):
        submit(jobs_here, *GIVEN)
    assert [each["slurm"] for each in submitting.jobs_in(tmp_path)] == [None, None]
    write_state(tmp_path / "b.json", read_state(tmp_path / "b.json") | {"state": "failed"})
    assert submit(jobs_here[1:], *GIVEN) == ["77"], "what ended may be given again"


def test_a_queue_that_does_not_answer_says_nothing(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(cluster, "squeue", "exec sleep 5")
    monkeypatch.setattr(submitting, "_SQUEUE_WITHIN_S", 0.2)
    begun_s = time.monotonic()
    assert submitting.queue() is None and time.monotonic() - begun_s < 4


def test_a_refusal_leaves_no_state(cluster: Path, tmp_path: Path) -> None:
    script(cluster, "sbatch", "echo first >&2", "echo 'invalid partition' >&2", "exit 1")
    with pytest.raises(InputError, match=r"sbatch refuses the jobs: .*invalid partition"):
        submit(given_to_slurm(tmp_path, "a"), *GIVEN)
    assert not list(tmp_path.glob("*.json"))


def test_a_job_that_began_at_once_keeps_its_state(cluster: Path, tmp_path: Path) -> None:
    state = json.dumps({"name": "a", "state": "running", "job": "77", "runs": 1})
    script(cluster, "sbatch", f"echo '{state}' >{tmp_path}/a.json", "echo job 77")
    submit(given_to_slurm(tmp_path, "a"), *GIVEN)
    assert read_state(tmp_path / "a.json")["state"] == "running"


def test_resources_that_were_not_said_are_left_to_slurm() -> None:
    told = {"job_name": "a", "time": 5, "signal_delay_s": 120}
    assert ResourceArguments(time="5").parameters("a") == {**told, "array_parallelism": 256}
    every = ResourceArguments("p", "c", "g", "1G", 2, "5", "acc", "q", ["x"], at_once=3)
    said = {"partition": "p", "constraint": "c", "gres": "g", "mem": "1G", "cpus_per_task": 2}
    said |= {"account": "acc", "qos": "q", "setup": ["x"], "array_parallelism": 3}
    assert every.parameters("a") == told | said


def test_a_snapshot_is_a_whole_copy_of_a_database(tmp_path: Path) -> None:
    database = tmp_path / "opdb.sqlite"
    assert snapshot(database, tmp_path) is None
    database.touch()
    assert snapshot(database, tmp_path) is None
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (7)")
    (tmp_path / "base.part").write_text("what was left of another")
    made = snapshot(database, tmp_path)
    assert made == tmp_path / "base.db" and not (tmp_path / "base.part").exists()
    assert sqlite3.connect(made).execute("SELECT x FROM t").fetchall() == [(7,)]
    database.write_text("no database")
    with pytest.raises(InputError, match=r"cannot copy .*opdb.sqlite to .*base.db"):
        snapshot(database, tmp_path)
    with pytest.raises(InputError, match="cannot copy"):
        snapshot(made, tmp_path / "nowhere")


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
