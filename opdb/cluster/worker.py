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

from opdb.bench.measure import measure_each
from opdb.bench.platform import detect
from opdb.bench.run import BenchResult, bench
from opdb.bench.sweep import sweep
from opdb.cluster.devices import Place
from opdb.cluster.messages import (
    Began,
    Bench,
    Failed,
    Finished,
    Job,
    Measure,
    Next,
    Ready,
    Said,
    Sweep,
    Swept,
    Turn,
    Visited,
)
from opdb.errors import OpdbError
from opdb.records import Configuration, ModelRun, Visit
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


def serve(place: Place, url: str, pipe: Pipe) -> None:
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


def _serve(place: Place, url: str, pipe: Pipe) -> None:
    try:
        pipe.send(Ready(detect(place.device)))
    except OpdbError as error:
        pipe.send(Failed(str(error), error.exit_status))
        return
    while True:
        task: Bench | Measure | Sweep = pipe.recv()
        try:
            with open_store(url, create=False) as store:
                done = _bench(place, store, task, pipe) if isinstance(task, Bench) else None
                if isinstance(task, Measure):
                    _measure(place, store, task, pipe)
                if isinstance(task, Sweep):
                    _sweep(place, store, task, pipe)
            pipe.send(Finished(done))
        except OpdbError as error:
            pipe.send(Failed(str(error), error.exit_status))


def _bench(place: Place, store: Store, task: Bench, pipe: Pipe) -> BenchResult:
    request = replace(task.request, device=place.device)
    return bench(store, request, _Told(pipe), _Turns(pipe, task.workers))


def _measure(place: Place, store: Store, task: Measure, pipe: Pipe) -> None:
    last: ModelRun | None = None

    def jobs() -> Iterator[Job]:
        while True:
            pipe.send(Next(last))
            job = pipe.recv()
            if not isinstance(job, Job):
                return
            yield job

    asked = ((job.request, job.workload, job.mode) for job in jobs())
    options = task.options
    for run in measure_each(store, asked, options, device=place.device, workers=task.workers):
        last = run


def _sweep(place: Place, store: Store, task: Sweep, pipe: Pipe) -> None:
    found = sweep(store, task.cells, task.options, device=place.device, workers=task.workers)
    for cell, run in found:
        pipe.send(Swept(cell, run.outcome, run.reason))


class _Told:
    """Tells the driving process how a campaign goes."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def say(self, text: str) -> None:
        self._pipe.send(Said(text))

    def begin(self, visits: int) -> None:
        self._pipe.send(Began(visits))

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        # Raw samples are stored; nobody who listens needs them.
        bare = replace(visit, stretch=None, restore=None, neighbours=None, kernels=None)
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
