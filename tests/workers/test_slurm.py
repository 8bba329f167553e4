"""Jobs on a real Slurm of one node, which these tests start and stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opdb import slurm as submitting
from opdb.bench.plan import MAX_REDONE
from opdb.commands.submit import parts_of
from opdb.errors import CannotMeasureError, InputError, UnknownNameError
from opdb.harvest.passes import harvest
from opdb.slurm import Job, read_state, write_state
from opdb.spec import ModelSpec
from opdb.store import VisitFilter, open_store
from opdb.store.claims import held
from tests import slurm
from tests.cli.conftest import Opdb
from tests.paths import python_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started() -> Iterator[slurm.Slurm]:
    if (why := slurm.missing()) is not None:
        pytest.skip(why)
    with slurm.slurm() as running:
        yield running


@pytest.fixture
def cluster(started: slurm.Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[slurm.Slurm]:
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
    return {each["name"]: each for each in submitting.jobs_in(folder)}


def wait_for(what: Callable[[], bool], logs: Callable[[], str], seconds: float = 150.0) -> None:
    until_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until_s, logs()
        time.sleep(0.1)


# What a command comes to, and what is said where there is no Slurm


def test_a_command_of_several_models_and_algorithms_is_an_array() -> None:
    options = ("--stage", "quick", "--verify", "--batch-size", "4")
    command = ["sweep", "--stage", "quick", "vgg16", "--algorithm=fft", "resnet50", "--verify"]
    assert parts_of([*command, "--algorithm", "winograd nonfused", "-b", "4"]) == [
        ("sweep", model, "--algorithm", algorithm, *options)
        for model in ("vgg16", "resnet50")
        for algorithm in ("fft", "winograd nonfused")
    ]
    assert parts_of(["measure", "alexnet", "vgg16", "--mode", "graph"]) == [
        ("measure", model, "--mode", "graph") for model in ("alexnet", "vgg16")
    ]
    assert len(parts_of(["sweep", "vgg16", "--algorithm", "all"])) == 10
    assert parts_of(["modes", "vit", "lstm", "--batch-sizes", "1", "8", "-q"]) == [
        ("modes", model, "--batch-sizes", "1", "--quiet", "8") for model in ("vit", "lstm")
    ]
    for verb in ("predict", "compare", "harvest", "measure"):
        assert parts_of([verb, "vit", "lstm", "-b", "1", "8"]) == [
            (verb, model, "--batch-sizes", "1", "8") for model in ("vit", "lstm")
        ]
    assert parts_of(["sweep", "vgg16", "vgg16", "-qb4"]) == [
        ("sweep", "vgg16", "--quiet", "--batch-size", "4")
    ]
    for whole in (
        ["bench", "--device", "cpu"],
        ["bench", "conv2d", "linear"],
        ["build", "--target", "0.9", "measurements/"],
    ):
        assert parts_of(whole) == [tuple(whole)]


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
        ("2-12", 3600),
        ("1-0:30", 1470),
        ("0:0:1", 1),
    ],
)
def test_times_are_slurms(text: str, expected: int) -> None:
    assert submitting.minutes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "1h", "1:2:3:4", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="--time"):
        submitting.minutes(text)


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


def test_states_without_slurm_are_what_the_files_say(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "jobs"
    folder.mkdir()
    assert opdb("show", "jobs", folder).status == 2
    state = {"name": "a", "job": "7", "state": "running", "runs": 2, "exit_status": None}
    state["log"] = str(folder / "a.log")
    write_state(folder / "a.json", state)
    ran = opdb("show", "jobs", folder)
    assert ran.status == 0 and "1 running" in ran.out
    write_state(folder / "a.json", state | {"state": "lost"})
    assert f"a: lost; see {folder}/submitit/7_*" in opdb("show", "jobs", folder).out
    (folder / "a.log").touch()
    assert f"a: lost; see {folder}/a.log" in opdb("show", "jobs", folder).out
    (folder / "b.json").write_text('{"state"')
    ran = opdb("show", "jobs", folder)
    assert ran.status == 2 and "b.json is not a job's state" in ran.err


# On a Slurm


def test_an_array_of_models_each_with_its_shard(
    cluster: slurm.Slurm, opdb: Opdb, tmp_path: Path
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
    cluster.wait_until_empty(300)
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


def test_a_job_that_is_requeued_loses_no_finished_visit(
    cluster: slurm.Slurm, opdb: Opdb, postgres_url: str
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
        return "\n".join([str(read_state(job.state)), *parts, cluster.logs()])

    with open_store(postgres_url) as store:

        def visits() -> list[str]:
            return [v.id for board in store.boards() for v in store.visits(board.uuid)]

        wait_for(lambda: len(visits()) >= 2, log)
        number = read_state(job.state)["job"]
        # What Slurm sends before a job's time is up, and submitit takes for a preemption too.
        cluster.run("scancel", "--signal=USR2", number)
        wait_for(lambda: read_state(job.state)["state"] == "stopped", log)
        before = visits()
        assert held(store) == [], log()

        def runs_again() -> bool:
            # Slurm lets a requeued job wait two minutes; it may still be ending, too.
            command = ["scontrol", "update", f"JobId={number}", "StartTime=now"]
            subprocess.run(command, env=cluster.environment, capture_output=True, check=False)
            return bool(read_state(job.state)["runs"] == 2)

        wait_for(runs_again, log)
        cluster.wait_until_empty(300)
        state = read_state(job.state)
        assert (state["state"], state["exit_status"]) == ("done", 0), log()
        after = visits()
        assert set(before) < set(after) and len(set(after)) == len(after)
        measured = VisitFilter(store.devices()[0].slug)
        made, rejected = store.outcomes(measured), store.outcomes(measured, rejected=True)
        # A visit that the CPU spoiled is made again, and kept beside the one that replaced it.
        spoiled = {key: min(rejected[key]["ok"], MAX_REDONE) for key in made if key in rejected}
        assert {counts["ok"] - spoiled.get(key, 0) for key, counts in made.items()} == {2}
        assert {key for key, _ in made} == store.usage().keys()


def test_two_commands_of_one_name_need_two_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submitting, "check_slurm", lambda: None)
    jobs = [Job("a", (name,), str(tmp_path), "sqlite:///x") for name in ("bench", "show")]
    write_state(jobs[0].state, {"name": "a", "state": "done", "command": ["bench"]})
    with pytest.raises(InputError, match="a job of that name with another command"):
        submitting.submit(jobs[1:], {}, 0)


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
