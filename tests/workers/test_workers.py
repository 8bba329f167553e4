"""Several workers on the processor of this machine, each a process, sharing one database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from opdb import workers
from opdb.bench.plan import BenchRequest
from opdb.bench.run import bench_on_each
from opdb.bench.session import detect, platforms
from opdb.errors import CannotMeasureError, InputError
from opdb.harvest.passes import harvest
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.store.claims import held
from opdb.workers import Crew, WorkerDevice, places
from tests.bench.calls import without_restoring
from tests.heard import Heard
from tests.paths import python_path
from tests.workers import short

TWO = [WorkerDevice("cpu", None), WorkerDevice("cpu", None)]
LOST = WorkerDevice("cuda:7", "7")
"""A device that is not there when its worker looks for it."""

HERE = detect("cpu").board
BOARDS = (HERE.uuid,)
SMALL = ModelSpec("resnet18", input_size=(3, 32, 32))

pytestmark = pytest.mark.usefixtures("short_workers")


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


def assert_whole(url: str) -> None:
    """Assert that everything was visited as often as is wanted, and nothing is claimed."""
    with open_store(url) as store:
        [board] = store.boards()
        visits = store.visits(board.uuid)
        assert {visit.outcome for visit in visits} == {"ok"}
        found = Counter((visit.configuration, visit.role) for visit in visits)
        assert {key for key, _ in found} == {c.key for c in store.configurations_among(None, None)}
        assert set(found.values()) == {2}
        assert store.costs(board.uuid).keys() == {
            c.key for c in store.configurations_among(None, None)
        }
        assert held(store) == []


def token_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Any, **given: Any) -> Path:
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setattr(workers, "serve", partial(serve, token=token, **given))
    return token


# Operators


def test_two_workers_share_what_is_pending_and_leave_nothing(each_url: str) -> None:
    heard = Heard()
    with open_store(each_url) as store:
        results, failures = bench_on_each(TWO, store, BenchRequest(duplicates=0.3), heard)
        assert failures == []
        again, _ = bench_on_each(TWO, store, BenchRequest(duplicates=0.3), Heard())
        assert_whole(each_url)
        environments = [campaign.environment for campaign in store.campaigns()]
    assert [environment["workers"] for environment in environments] == ["2", "2"]
    assert [result.campaign for result in again] == [None, None]
    assert all(result.configurations for result in results), "each had a share"
    assert all(text.startswith("cpu: ") for text in heard.said)
    assert sum(" to measure on " in text for text in heard.said) == 2


def test_a_worker_that_is_killed_loses_nothing_finished(
    each_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_of(tmp_path, monkeypatch, short.serve)
    with open_store(each_url) as store:
        _, [failure] = bench_on_each(TWO, store, BenchRequest(), Heard())
        assert failure == "cpu: its process ended by itself (exit status -9)"
        assert bench_on_each(TWO, store, BenchRequest(), Heard())[1] == []
    assert_whole(each_url)


def test_a_device_that_is_not_there_stops_no_other(url: str) -> None:
    with open_store(url) as store:
        _, [failure] = bench_on_each([TWO[0], LOST], store, BenchRequest(), Heard())
        assert failure.startswith("cuda:7: no CUDA device")
        assert_whole(url)
        with pytest.raises(CannotMeasureError, match="cuda:7: no CUDA device"):
            bench_on_each([LOST], store, BenchRequest(), Heard())
    assert [each.device.type for each in platforms([TWO[0], LOST, TWO[1]])] == ["cpu"]


# The host


def test_one_worker_at_a_time_has_the_host_and_nobody_measures_meanwhile(tmp_path: Path) -> None:
    measuring, inside, most = set[int](), set[int](), []

    def work(number: int) -> None:
        crew = Crew(3, tmp_path)  # each process opens the files itself
        with crew.measuring():
            for step in range(6):
                if step == number:
                    with crew.alone():
                        inside.add(number)
                        time.sleep(0.03)
                        most.append((len(inside), len(measuring)))
                        inside.remove(number)
                measuring.add(number)
                time.sleep(0.01)
                assert not inside
                measuring.remove(number)
                crew.make_way()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [(1, 0)] * 3


# Devices


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
    monkeypatch.setattr("opdb.workers.cuda_devices", lambda: 2)
    with pytest.raises(InputError, match=said):
        places(text)


def test_a_worker_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opdb.workers.cuda_devices", lambda: 2)
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
    monkeypatch.setattr("opdb.workers.cuda_devices", lambda: 0)
    with pytest.raises(CannotMeasureError, match="no CUDA device"):
        places("all")


# The end


PROGRAM = """
import sys
from opdb.cli import main
from opdb import workers
from tests.workers import short
if __name__ == "__main__":
    workers.serve = short.serve
    short.start_quickly()
    sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def benching(url: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Store]]:
    """Start a bench by two workers as a terminal does; go on once it has stored a visit."""
    program = folder / "program.py"
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
            yield running, store
            assert held(store) == []
    finally:
        running.kill()


@pytest.mark.slow
def test_ctrl_c_stops_all_workers_and_loses_no_finished_visit(url: str, tmp_path: Path) -> None:
    with benching(url, tmp_path) as (running, store):
        os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it: to every process
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 130
        assert errors.splitlines()[-1] == "opdb: interrupted; what was finished is stored"
        assert "Traceback" not in errors
        [board] = store.boards()
        visits = store.visits(board.uuid)
        assert visits and len(visits) < 2 * len(store.configurations_among(None, None))
        # A duplicate, blind as it is, makes no cost.
        counted = {visit.configuration for visit in visits if visit.role == "measurement"}
        assert store.costs(board.uuid).keys() == counted
