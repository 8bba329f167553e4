"""Several workers on the processor of this machine, each a process, sharing one database."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import psutil
import pytest

from opdb.algorithms.names import algorithm_named
from opdb.bench.measure import ModelWork
from opdb.bench.model import RunOptions
from opdb.bench.platform import detect
from opdb.bench.request import BenchRequest
from opdb.cluster import crew
from opdb.cluster.crew import Crew, Worker
from opdb.cluster.devices import WorkerDevice, places
from opdb.cluster.messages import Finished, Turn
from opdb.cluster.worker import Pipe, _Turns
from opdb.errors import CannotMeasureError, InputError
from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.records import Configuration, Visit
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.work import Answer
from opdb.store import Store, open_store
from opdb.store.claims import held
from opdb.sweep.measuring import SweepOptions, SweepWork
from opdb.sweep.specs import SweepPolicy, SweepSpec
from tests.bench.calls import without_restoring
from tests.cluster import short
from tests.paths import python_path

TWO = [WorkerDevice("cpu", None), WorkerDevice("cpu", None)]
LOST = WorkerDevice("cuda:7", "7")
"""A device that is not there when its worker looks for it."""

HERE = detect("cpu").board
BOARDS = (HERE.uuid,)
WORK = ModelWork(ModelPolicy((HERE.device,), BOARDS), options=RunOptions(2))
SWEEP = SweepWork(SweepPolicy((HERE.device,)), options=SweepOptions(warm_up=1, measure=3))
SMALL = ModelRequest("resnet18", input_size=(3, 32, 32))


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.planned: list[int] = []
        self.visits: list[Visit] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def begin(self, visits: int) -> None:
        self.planned.append(visits)

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        assert visit.configuration == configuration.key and cost_s > 0
        self.visits.append(visit)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return harvested(f"sqlite:///{tmp_path / 'opdb.sqlite'}")


@pytest.fixture(params=["sqlite", "postgresql"])
def each_url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgresql":
        return harvested(str(request.getfixturevalue("postgres_url")))
    return str(request.getfixturevalue("url"))


def harvested(url: str) -> str:
    with open_store(url) as store:
        store.save_workload(without_restoring(harvest(SMALL)))
    return url


def made(store: Store) -> Counter[tuple[str, str]]:
    """Count the good visits of each configuration and role, on whichever board."""
    visits = [visit for board in store.boards() for visit in store.visits(board.uuid)]
    assert {visit.outcome for visit in visits} == {"ok"}
    return Counter((visit.configuration, visit.role) for visit in visits)


def assert_whole(url: str) -> None:
    """Assert that everything was visited as often as is wanted, and nothing is claimed."""
    with open_store(url) as store:
        found = made(store)
        assert {key for key, _ in found} == store.usage().keys()
        assert set(found.values()) == {2}
        [board] = store.boards()
        assert store.costs(board.uuid).keys() == store.usage().keys()
        assert held(store) == []


pytestmark = pytest.mark.usefixtures("short_workers")


def test_two_workers_share_what_is_pending_and_leave_nothing(each_url: str) -> None:
    url = each_url
    heard = Heard()
    with Crew(TWO, url) as workers:
        results = workers.bench(BenchRequest(duplicates=0.3), heard)
        assert workers.failures == []
        again = workers.bench(BenchRequest(duplicates=0.3), Heard())
    assert_whole(url)
    assert [result.campaign for result in again] == [None, None]
    assert all(result.configurations for result in results), "each had a share"
    visits = sum(result.outcomes.total() for result in results)
    assert len(heard.visits) == visits == heard.planned[-1]
    assert sorted(heard.said)[:2] == [heard.said[0]] * 2 and heard.said[0].startswith("cpu: calib")
    with open_store(url) as store:
        environments = [campaign.environment for campaign in store.campaigns()]
    assert [environment["workers"] for environment in environments] == ["2", "2"]


def test_a_worker_that_is_killed_loses_nothing_and_the_other_does_its_work(
    each_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = each_url, tmp_path / "token"
    token.touch()
    monkeypatch.setattr(crew, "serve", partial(short.serve, token=token))
    heard = Heard()
    with Crew(TWO, url) as workers:
        workers.bench(BenchRequest(), heard)
        [failure] = workers.failures
    assert failure == "cpu: its process ended by itself (exit status -9)"
    assert_whole(url)
    with open_store(url) as store:
        assert len(store.campaigns()) >= 2


@contextmanager
def an_hour_passes_for_who_hangs(workers: Crew) -> Iterator[None]:
    """Let the crew have last heard long ago of a worker that stands still, and of no other."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for worker in workers.alive:
                with suppress(psutil.NoSuchProcess):
                    if psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED:
                        worker.heard_s = -math.inf

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def test_a_worker_that_hangs_is_ended_and_the_other_does_its_work(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setattr(crew, "serve", partial(short.serve_until_it_hangs, token=token))
    monkeypatch.setattr(crew, "LOOK_EVERY_S", 0.2)
    with Crew(TWO, url) as workers, an_hour_passes_for_who_hangs(workers):
        workers.bench(BenchRequest(), Heard())
        [failure] = workers.failures
    assert re.match("cpu: it told nothing for .* and was ended; look at nvidia-smi", failure)
    assert_whole(url)


def test_a_worker_that_hangs_in_a_run_is_ended_and_the_other_makes_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setattr(crew, "serve", partial(short.serve_until_it_hangs, token=token))
    monkeypatch.setattr(crew, "LOOK_EVERY_S", 0.2)
    with open_store(url) as store:
        workload = harvest(request := ModelRequest("mlp"))
        store.save_workload(workload)
    jobs = [ModelSpec(request, workload.key, "eager", BOARDS)]
    with Crew(TWO, url) as workers, an_hour_passes_for_who_hangs(workers):
        [(_, _, run)] = workers.make(WORK, jobs, lambda spec, device: "go")
        assert len(workers.failures) == 1 and not token.exists()
    with open_store(url) as store:
        assert [each.id for each in store.model_runs()] == [run.id] and held(store) == []


def test_a_device_that_is_not_there_stops_no_other(url: str) -> None:
    with Crew([TWO[0], LOST], url) as workers:
        assert [platform.device.type for platform in workers.platforms] == ["cpu"]
        workers.bench(BenchRequest(), Heard())
        [failure] = workers.failures
    assert failure.startswith("cuda:7: no CUDA device")
    assert_whole(url)


def test_without_any_device_nothing_begins(url: str) -> None:
    with pytest.raises(CannotMeasureError, match="cuda:7: no CUDA device"), Crew([LOST], url):
        pytest.fail("there is nobody to work")


def test_models_are_handed_to_whoever_is_free(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ModelRequest("mlp", batch_size=size) for size in (1, 2, 3, 4)]
    with open_store(url) as store:
        jobs = []
        for request in requests:
            workload = harvest(request)
            store.save_workload(workload)
            jobs.append(ModelSpec(request, workload.key, "eager", BOARDS))
    told: list[str] = []

    def ask(spec: ModelSpec, device: str) -> Answer:
        told.append(device)
        return "go"

    with Crew(TWO, url) as workers:
        done = {spec: run for _, spec, run in workers.make(WORK, jobs, ask)}
        assert list(workers.make(WORK, jobs, ask)) == [], "what is stored is not made again"
    assert done.keys() == set(jobs) and told == ["cpu"] * 4
    for job, run in done.items():
        assert (run.workload, run.outcome) == (job.workload, "ok")
        assert "2 workers measured on this host at once" in run.flags
    with open_store(url) as store:
        assert len(store.model_runs()) == 4
        assert len({run.campaign for run in store.model_runs()}) == 2


def test_the_run_of_a_worker_that_dies_is_handed_to_another(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setattr(crew, "serve", partial(short.serve_until_a_run, token=token))
    jobs = []
    with open_store(url) as store:
        for size in (1, 2, 3):
            workload = harvest(request := ModelRequest("mlp", batch_size=size))
            store.save_workload(workload)
            jobs.append(ModelSpec(request, workload.key, "eager", BOARDS))
    with Crew(TWO, url) as workers:
        done = [spec for _, spec, run in workers.make(WORK, jobs, lambda spec, device: "go")]
        [failure] = workers.failures
    assert failure == "cpu: its process ended by itself (exit status -9)"
    assert sorted(spec.key for spec in done) == sorted(job.key for job in jobs)
    with open_store(url) as store:
        assert len(store.model_runs()) == 3 and held(store) == []


def test_the_cell_of_a_worker_that_dies_is_handed_to_one_that_had_finished(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep's workers wait for no other's cell: one without a cell of its own is done at once."""
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setattr(crew, "serve", partial(short.serve_until_a_run, token=token))
    with open_store(url) as store:
        workload = harvest(request := SMALL.checked())
        store.save_workload(workload)
        cell = SweepSpec(request, workload.key, 32, algorithm_named("default"), "eager")
        with Crew(TWO, url) as workers:
            [(_, spec, run)] = workers.make(SWEEP, [cell], lambda spec, device: "go")
            assert len(workers.failures) == 1 and not token.exists()
        assert (spec, run.outcome) == (cell, "ok")
        assert len(SWEEP.policy.runs(store)) == 1 and held(store) == []


def test_workers_have_the_host_one_after_the_other(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that time the host at once would each time the other's work."""
    notes = tmp_path / "notes"
    monkeypatch.setattr(crew, "serve", partial(short.serve_and_note, notes=notes))
    with Crew(TWO, url) as workers:
        workers.bench(BenchRequest(), Heard())
        assert workers.failures == []
    moments = sorted(tuple(map(float, line.split())) for line in notes.read_text().splitlines())
    (_, first_end_s), (second_start_s, _) = moments[:2]  # settling, at the end, waits for nobody
    assert first_end_s <= second_start_s


def test_the_host_is_given_to_one_of_many_and_all_go_on_when_each_has_had_it() -> None:
    """Threads that wait for their turns as workers do, each over a pipe of its own."""
    inside, most, past = set[int](), [], []

    def work(number: int, pipe: Pipe) -> None:
        with _Turns(pipe, 3).in_turn():
            inside.add(number)
            time.sleep(0.05)
            most.append(len(inside))
            inside.remove(number)
        past.append(len(most))
        pipe.send(Finished(None))

    pipes = [multiprocessing.Pipe() for _ in range(3)]
    driven = Crew.__new__(Crew)
    workers = [Worker(TWO[0], None, here) for here, _ in pipes]  # type: ignore[arg-type]
    threads = [Thread(target=work, args=(n, there)) for n, (_, there) in enumerate(pipes)]
    for thread in threads:
        thread.start()
    driven._drive(workers, {Turn: driven._take_turns})
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1] and past == [3, 3, 3]


def test_no_model_begins_when_the_time_is_up(url: str) -> None:
    workload = harvest(SMALL)
    jobs = [ModelSpec(SMALL, workload.key, "eager", BOARDS)] * 3
    with Crew(TWO, url) as workers:
        assert list(workers.make(WORK, jobs, lambda spec, device: "stop")) == []
    with open_store(url) as store:
        assert store.model_runs() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,zero", "'zero' is no device"),
        ("", "'' is no device"),
        ("0,1,0", "cuda:0 is named twice"),
        ("cuda:0,0", "cuda:0 is named twice"),
    ],
)
def test_what_names_no_devices(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opdb.cluster.devices.cuda_devices", lambda: 2)
    with pytest.raises(InputError, match=said):
        places(text)


def test_a_worker_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opdb.cluster.devices.cuda_devices", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (
        places("all")
        == [WorkerDevice("cuda:0", "0"), WorkerDevice("cuda:1", "1")]
        == places("0, cuda:1")
    )
    assert places("cpu, cpu") == TWO
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5,GPU-3")
    assert places("1") == [WorkerDevice("cuda:1", "GPU-3")]
    assert [place.device for place in places("all")] == ["cuda", "cuda"]
    with pytest.raises(CannotMeasureError, match="no device cuda:2; this machine has 2"):
        places("2")
    monkeypatch.setattr("opdb.cluster.devices.cuda_devices", lambda: 0)
    with pytest.raises(CannotMeasureError, match="no CUDA device"):
        places("all")


PROGRAM = """
import sys
from opdb.cli import main
from opdb.cluster import crew
from tests.cluster import short
if __name__ == "__main__":
    crew.serve = short.serve
    short.start_quickly()
    sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_stops_all_workers_and_loses_no_finished_visit(url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "bench", "--devices", "cpu,cpu", "--db", url]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        with open_store(url) as store:
            until_s = time.monotonic() + 100
            while not (store.boards() and store.visits(store.boards()[0].uuid)):
                assert time.monotonic() < until_s and running.poll() is None
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it: to every process
            _, errors = running.communicate(timeout=60)
            assert running.returncode == 130
            assert errors.splitlines()[-1] == "opdb: interrupted; what was finished is stored"
            assert "Traceback" not in errors
            [board] = store.boards()
            visits = store.visits(board.uuid)
            assert visits and len(visits) < 2 * len(store.usage())
            # A duplicate, blind as it is, makes no cost.
            counted = {visit.configuration for visit in visits if visit.role == "measurement"}
            assert store.costs(board.uuid).keys() == counted
            assert held(store) == []
    finally:
        running.kill()


def test_a_crew_whose_driver_is_killed_ends(url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "bench", "--devices", "cpu,cpu", "--db", url, "-q"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    running = subprocess.Popen(command, env=environment, start_new_session=True)
    with open_store(url) as store:
        until_s = time.monotonic() + 100
        while not (store.boards() and store.visits(store.boards()[0].uuid)):
            assert time.monotonic() < until_s and running.poll() is None
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        while True:  # the workers notice when they next have something to tell
            try:
                os.killpg(running.pid, 0)
            except ProcessLookupError:
                break
            assert time.monotonic() < until_s
            time.sleep(0.1)
        assert held(store) == []


def test_a_sweeps_cells_are_shared(url: str, short_workers: None) -> None:
    default = algorithm_named("default")
    with open_store(url) as store:
        cells = []
        for size in (32, 40, 48, 56):
            request = replace(SMALL, input_size=(3, size, size)).checked()
            workload = harvest(request)
            store.save_workload(workload)
            cells.append(SweepSpec(request, workload.key, size, default, "eager"))
        with Crew(TWO, url) as two:
            found = list(two.make(SWEEP, cells, lambda spec, device: "go"))
            assert not two.failures
            assert list(two.make(SWEEP, cells, lambda spec, device: "go")) == []
        assert sorted(spec.size for _, spec, _ in found) == [32, 40, 48, 56]
        assert {run.outcome for _, _, run in found} == {"ok"}
        assert len(SWEEP.policy.runs(store)) == 4
        runs = [store.model_runs(cell.workload, setting=cell.setting) for cell in cells]
        assert all("2 workers measured on this host at once" in run.flags for [run] in runs)
        assert not held(store)


def test_a_sweep_goes_on_when_a_worker_has_no_device(url: str, short_workers: None) -> None:
    with open_store(url) as store, Crew([TWO[0], LOST], url) as crew:
        request = SMALL.checked()
        workload = harvest(request)
        store.save_workload(workload)
        cell = SweepSpec(request, workload.key, 32, algorithm_named("default"), "eager")
        [(device, spec, run)] = crew.make(SWEEP, [cell], lambda spec, device: "go")
        assert (device, spec, run.outcome) == ("cpu", cell, "ok")
        assert len(crew.failures) == 1
