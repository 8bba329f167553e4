"""What a worker tells and hears, over a real pipe, its bench and its runs played."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from opdb.bench.platform import detect
from opdb.bench.request import BenchRequest
from opdb.cluster import worker
from opdb.cluster.devices import WorkerDevice
from opdb.cluster.messages import (
    Answered,
    Asked,
    Began,
    Bench,
    Failed,
    Finished,
    Go,
    Made,
    Make,
    Ready,
    Said,
    Turn,
    Visited,
)
from opdb.errors import CannotMeasureError
from opdb.store import open_store
from tests.store import samples

CPU = WorkerDevice("cpu", None)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put back how this process hears signals."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'opdb.sqlite'}"
    open_store(url).close()
    return url


def serve(url: str, *given: object, place: WorkerDevice = CPU) -> list[Any]:
    """Let a worker do what it is given; return what it says, until nobody listens."""
    here, there = multiprocessing.Pipe()
    for each in given:
        here.send(each)
    said: list[Any] = []
    tasks = sum(isinstance(each, Bench | Make) for each in given)

    def listen() -> None:
        with suppress(EOFError):
            while sum(isinstance(each, Ready | Finished | Failed) for each in said) <= tasks:
                said.append(here.recv())
        here.close()

    listening = Thread(target=listen)
    listening.start()
    try:
        worker.serve(place, url, there)
    finally:
        there.close()
        listening.join()
    return said


def test_a_bench_is_told_as_it_goes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def bench(store: Any, request: BenchRequest, told: Any, turns: Any) -> str:
        asked.append((store.url, request.device, turns.workers))
        told.say("calibrates")
        told.begin(7)
        with turns.in_turn():
            told.say("has the host")
        told.visited(samples.CONV, samples.visit(neighbours=samples.NEIGHBOURS), 0.5)
        return "the result"

    monkeypatch.setattr(worker, "bench", bench)
    said = serve(url, Bench(BenchRequest(), 3), Go(), Go())
    bare = samples.visit(restore=None, kernels=None)
    assert said == [
        Ready(detect("cpu")),
        Said("calibrates"),
        Began(7),
        Turn("awaited"),
        Said("has the host"),
        Turn("over"),
        Visited(samples.CONV, bare, 0.5),
        Finished("the result"),  # type: ignore[arg-type]
    ]
    assert [tuple(each[1:]) for each in asked] == [("cpu", 3)] and asked[0][0].endswith("sqlite")


def test_a_turn_begins_and_ends_when_the_driver_says_so() -> None:
    here, there = multiprocessing.Pipe()
    steps: list[str] = []

    def take_turn() -> None:
        with worker._Turns(there, 2).in_turn():
            steps.append("has the host")
        steps.append("goes on")

    taking = Thread(target=take_turn)
    taking.start()
    assert here.recv() == Turn("awaited")
    assert not here.poll(0.2) and steps == []
    here.send(Go())
    assert here.recv() == Turn("over")
    taking.join(0.2)
    assert taking.is_alive() and steps == ["has the host"]
    here.send(Go())
    taking.join(20)
    assert steps == ["has the host", "goes on"]


class Runs:
    """Work that asks of each spec and makes those that may begin."""

    def run(
        self, store: Any, specs: Any, device: str, ask: Any, workers: int
    ) -> Iterator[tuple[Any, str]]:
        for spec in specs:
            if ask(spec) == "go":
                yield spec, f"{spec.key} on {device} of {workers}"


def test_runs_are_asked_for_and_told(url: str) -> None:
    specs: Any = (SimpleNamespace(key="a"), SimpleNamespace(key="b"))
    work: Any = Runs()
    said = serve(url, Make(work, specs, 2), Answered("skip"), Answered("go"))
    assert said[1:] == [Asked("a"), Asked("b"), Made("b", "b on cpu of 2"), Finished(None)]  # type: ignore[arg-type]


def test_a_task_that_fails_is_told_and_the_next_is_done(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [CannotMeasureError("no power"), "the result"]

    def bench(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(worker, "bench", bench)
    task = Bench(BenchRequest(), 1)
    said = serve(url, task, task)
    assert said[1:] == [Failed("no power", 3), Finished("the result")]  # type: ignore[arg-type]


def test_a_database_that_is_not_there_is_not_made(url: str, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.sqlite"
    [_, failed] = serve(f"sqlite:///{nowhere}", Bench(BenchRequest(), 1))
    assert isinstance(failed, Failed) and failed.exit_status == 2 and not nowhere.exists()


def test_a_device_that_is_not_there_ends_the_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    [failed] = serve(url, place=WorkerDevice("cuda:1", "GPU-of-a-test"))
    assert isinstance(failed, Failed) and failed.exit_status == 3 and not failed.claim_lost
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-of-a-test"


def test_sigterm_stops_a_worker_at_once_and_ctrl_c_does_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after: list[object] = []

    def bench(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        after.append("Ctrl-C")
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            after.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(worker, "bench", bench)
    with pytest.raises(SystemExit) as ended:
        serve(url, Bench(BenchRequest(), 1))
    assert ended.value.code == 143
    assert after == ["Ctrl-C", signal.SIG_IGN], "and once is enough"
