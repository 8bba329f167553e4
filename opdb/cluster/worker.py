"""One worker: a process with one device, which benches and measures what it is told to."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, TypeAlias

from opdb.bench.platform import detect
from opdb.bench.run import BenchResult, bench
from opdb.cluster.devices import WorkerDevice
from opdb.cluster.messages import (
    Asked,
    Began,
    Bench,
    Failed,
    Finished,
    Made,
    Make,
    Ready,
    Said,
    Turn,
    Visited,
)
from opdb.errors import OpdbError
from opdb.records import Configuration, Visit
from opdb.runs.table import RunSpec
from opdb.runs.work import Answer
from opdb.store import Store, open_store

Pipe: TypeAlias = "Connection[Any, Any]"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep Ctrl-C from a process that is started meanwhile, its imports too; here it only waits."""
    waiting: list[tuple[int, FrameType | None]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.getsignal(signal.SIGINT)
    here = callable(handler) and threading.current_thread() is threading.main_thread()
    if here:  # the signal may reach another thread, for which it is not blocked
        signal.signal(signal.SIGINT, lambda *given: waiting.append(given))
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if waiting and callable(handler):
            handler(*waiting[0])


def serve(place: WorkerDevice, url: str, pipe: Pipe) -> None:
    """Do one task after another until the pipe is closed; what runs in a worker's process.

    Ctrl-C reaches every process of a terminal; a worker leaves it to the one that drives it, which
    ends it by SIGTERM: then it stops at once, and what was finished is stored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    if place.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = place.visible  # read when CUDA is first used
    try:
        _serve(place, url, pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nobody listens any more
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
    raise KeyboardInterrupt


def _serve(place: WorkerDevice, url: str, pipe: Pipe) -> None:
    try:
        pipe.send(Ready(detect(place.device)))
    except OpdbError as error:
        pipe.send(Failed(str(error), error.exit_status))
        return
    while True:
        task: Bench | Make = pipe.recv()
        try:
            with open_store(url, create=False) as store:
                done = _bench(place, store, task, pipe) if isinstance(task, Bench) else None
                if isinstance(task, Make):
                    _make(place, store, task, pipe)
            pipe.send(Finished(done))
        except OpdbError as error:
            pipe.send(Failed(str(error), error.exit_status))


def _bench(place: WorkerDevice, store: Store, task: Bench, pipe: Pipe) -> BenchResult:
    request = replace(task.request, device=place.device)
    return bench(store, request, _Told(pipe), _Turns(pipe, task.workers))


def _make(place: WorkerDevice, store: Store, task: Make, pipe: Pipe) -> None:
    def ask(spec: RunSpec) -> Answer:
        pipe.send(Asked(spec.key))
        answer: Answer = pipe.recv().answer
        return answer

    for spec, run in task.work.run(store, task.specs, place.device, ask, task.workers):
        pipe.send(Made(spec.key, run))


class _Told:
    """Tells the driving process how a campaign goes."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def say(self, text: str) -> None:
        self._pipe.send(Said(text))

    def begin(self, visits: int) -> None:
        self._pipe.send(Began(visits))

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        # It is stored; who listens shows the power and clock of its stretch.
        bare = replace(visit, restore=None, neighbours=None, kernels=None)
        self._pipe.send(Visited(configuration, bare, cost_s))


class _Turns:
    """Waits for its turn by asking the driving process."""

    def __init__(self, pipe: Pipe, workers: int) -> None:
        self._pipe, self.workers = pipe, workers

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Have the host alone once all are there; go on when all have had it."""
        self._pipe.send(Turn("awaited"))
        self._pipe.recv()
        yield
        self._pipe.send(Turn("over"))
        self._pipe.recv()
