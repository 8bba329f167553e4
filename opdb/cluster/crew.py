"""Workers on several devices of this host, driven by this process.

What is pending they claim from the database, so that no two measure the same; models are handed
out one by one. A worker that fails or dies stops no other: what it left is taken over.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from opdb.bench.model import RunOptions
from opdb.bench.platform import Platform
from opdb.bench.rounds import Progress
from opdb.bench.run import BenchRequest, BenchResult
from opdb.bench.sweep import SweepOptions
from opdb.cluster.devices import Place
from opdb.cluster.messages import (
    Began,
    Bench,
    Failed,
    Finished,
    Go,
    Job,
    Measure,
    Next,
    NoMore,
    Ready,
    Said,
    Sweep,
    Swept,
    Turn,
    Visited,
)
from opdb.cluster.worker import Pipe, serve, uninterrupted
from opdb.errors import CannotMeasureError
from opdb.records import ModelRun
from opdb.sweep.cells import Cell

START = "spawn"
"""How a worker's process is started: afresh, so that it shares no state of CUDA with this one."""

STOPPED_WITHIN_S = 30.0
"""So long a worker that was told to stop may take to derive its costs; then it is killed."""


@dataclass(eq=False)
class Worker:
    """A worker's process, seen from here."""

    place: Place
    process: BaseProcess
    pipe: Pipe
    platform: Platform | None = None
    failed: str | None = None
    turn: str | None = None
    job: Job | None = None
    results: list[BenchResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What messages call it: its device."""
        return self.place.name

    def fail(self, why: str) -> None:
        """Keep why the worker failed."""
        self.failed = f"{self.name}: {why}"


class Crew:
    """Workers, one a device, from their start to their end."""

    def __init__(self, places: Sequence[Place], url: str) -> None:
        """Start a process for each place; all write the database of the URL, which must exist.

        Raises:
            CannotMeasureError: none of them has its device.
        """
        self._workers = [_started(place, url) for place in places]
        try:
            self._drive(self._workers, {})
            if not self.alive:
                raise CannotMeasureError(self.failures[0])
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stop()
        for worker in self._workers:
            worker.pipe.close()  # a worker that waits for work ends with it
        for worker in self._workers:
            worker.process.join(STOPPED_WITHIN_S)
        self._kill()

    @property
    def alive(self) -> list[Worker]:
        """The workers that can be given work."""
        return [worker for worker in self._workers if worker.failed is None]

    @property
    def failures(self) -> list[str]:
        """Why each worker that failed did, its device named first."""
        return [worker.failed for worker in self._workers if worker.failed is not None]

    @property
    def platforms(self) -> list[Platform]:
        """What each worker measures on, those that failed at their start left out."""
        return [worker.platform for worker in self._workers if worker.platform is not None]

    def bench(self, request: BenchRequest, progress: Progress) -> list[BenchResult]:
        """Bench what is pending on all devices; return what each campaign did.

        What a worker left that failed is made by the others; `failures` tell of it.

        Raises:
            CannotMeasureError: every worker failed.
        """
        results: list[BenchResult] = []
        self._try_again(progress)
        while workers := self.alive:
            told = _Merged(progress, len(workers))
            for worker in workers:
                worker.results.clear()
                told.begun[worker] = 0
            self._send(workers, Bench(request, len(workers)))
            self._drive(workers, {Turn: self._take_turns, **told.handlers})
            results += [result for worker in workers for result in worker.results]
            if len(self.alive) == len(workers):
                return results
            request = replace(request, retry=False)  # what was tried again is not tried for ever
        raise CannotMeasureError("; ".join(self.failures))

    def measure(
        self,
        jobs: Sequence[Job],
        options: RunOptions,
        tell: Callable[[Job, str], bool] = lambda job, device: True,
    ) -> Iterator[tuple[Job, ModelRun]]:
        """Measure each model on whichever device is free; yield each run once it is saved.

        `tell` hears of each before it begins, with the device, and says whether it shall. A job
        whose worker died is given to another worker, once.

        Raises:
            CannotMeasureError: every worker failed, with jobs left.
        """
        left, again = deque(jobs), set[int]()
        done: deque[tuple[Job, ModelRun]] = deque()

        def hand_out(worker: Worker, message: Next) -> None:
            if message.run is not None and worker.job is not None:
                done.append((worker.job, message.run))
            worker.job = left.popleft() if left else None
            if worker.job is not None and not tell(worker.job, worker.name):
                left.clear()
                worker.job = None
            _tell(worker, worker.job or NoMore())

        while left and (workers := self.alive[: len(left)]):
            self._send(workers, Measure(options, len(workers)))
            for _ in self._events(workers, {Next: hand_out}):
                while done:
                    yield done.popleft()
            for worker in workers:
                job, worker.job = worker.job, None
                if job is not None and id(job) not in again:
                    again.add(id(job))
                    left.append(job)
        if left:
            raise CannotMeasureError("; ".join(self.failures))

    def sweep(self, cells: Sequence[Cell], options: SweepOptions) -> Iterator[tuple[str, Swept]]:
        """Measure the cells of a sweep on all devices; yield each, its device first, once saved.

        What a worker left that failed is measured by the others; `failures` tell of it.

        Raises:
            CannotMeasureError: every worker failed.
        """
        done: deque[tuple[str, Swept]] = deque()

        def keep(worker: Worker, message: Swept) -> None:
            done.append((worker.name, message))

        while workers := self.alive:
            self._send(workers, Sweep(tuple(cells), options, len(workers)))
            for _ in self._events(workers, {Swept: keep}):
                while done:
                    yield done.popleft()
            if len(self.alive) == len(workers):
                return
            options = replace(options, retry=False)  # what was tried again is not for ever
        raise CannotMeasureError("; ".join(self.failures))

    def _try_again(self, progress: Progress) -> None:
        """Count on workers again that failed at a task and are still there."""
        for worker in self._workers:
            had_its_device = worker.platform is not None
            if worker.failed is not None and had_its_device and worker.process.is_alive():
                progress.say(f"{worker.failed}; it is tried again")
                worker.failed = None

    # Driving

    def _send(self, workers: Sequence[Worker], task: Bench | Measure | Sweep) -> None:
        for worker in workers:
            worker.turn = None
            _tell(worker, task)

    def _drive(self, workers: Sequence[Worker], handlers: Handlers) -> None:
        for _ in self._events(workers, handlers):
            pass

    def _events(self, workers: Sequence[Worker], handlers: Handlers) -> Iterator[None]:
        """Hear the workers until each has finished, failed or died; yield after each message.

        Ctrl-C stops them all before it goes on its way.
        """
        self._busy = [worker for worker in workers if worker.failed is None]
        try:
            while self._busy:
                ready = wait([worker.pipe for worker in self._busy])
                for worker in [worker for worker in self._busy if worker.pipe in ready]:
                    self._hear(worker, handlers)
                    yield
        except KeyboardInterrupt:
            self._stop()
            raise

    def _hear(self, worker: Worker, handlers: Handlers) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(STOPPED_WITHIN_S)
            worker.fail(f"its process ended by itself (exit status {worker.process.exitcode})")
            message = None
        if isinstance(message, Ready):
            worker.platform = message.platform
        elif isinstance(message, Failed):
            worker.fail(message.message)
        elif isinstance(message, Finished):
            if message.result is not None:
                worker.results.append(message.result)
        elif message is not None:
            handlers[type(message)](worker, message)
            return
        self._busy.remove(worker)
        self._let_on()

    def _take_turns(self, worker: Worker, message: Turn) -> None:
        worker.turn = message.state
        self._let_on()

    def _let_on(self) -> None:
        """Give the host to one worker after another, and let them all on when each has had it."""
        if not all(worker.turn in ("awaited", "over") for worker in self._busy):
            return  # one is still to come, has it now, or all are past it
        waiting = [worker for worker in self._busy if worker.turn == "awaited"]
        for worker in waiting[:1] or self._busy:
            worker.turn = "has it" if waiting else "past"
            _tell(worker, Go())

    def _stop(self) -> None:
        """Tell every worker to stop, and wait until what it finished is stored and derived."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.pipe.close()
            worker.process.join(STOPPED_WITHIN_S)
        self._kill()

    def _kill(self) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()


Handlers = dict[type, Callable[[Worker, Any], None]]


def _started(place: Place, url: str) -> Worker:
    context: Any = multiprocessing.get_context(START)
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(place, url, there), name=f"opdb {place.name}")
    with uninterrupted():
        process.start()
    there.close()  # so that the pipe ends when the worker does
    return Worker(place, process, here)


def _tell(worker: Worker, message: object) -> None:
    """Send a worker something; one that is gone is found out when it is listened to."""
    try:
        worker.pipe.send(message)
    except OSError:
        return


class _Merged:
    """The progress of several workers as one: one bar, and each message with its device."""

    def __init__(self, progress: Progress, workers: int) -> None:
        self._progress, self._several = progress, workers > 1
        self.begun: dict[Worker, int] = {}
        self.handlers: Handlers = {
            Said: self._said,
            Began: self._began,
            Visited: self._visited,
        }

    def _said(self, worker: Worker, message: Said) -> None:
        self._progress.say(f"{worker.name}: {message.text}" if self._several else message.text)

    def _began(self, worker: Worker, message: Began) -> None:
        # All plan the same list, of which each makes its share.
        most = max(self.begun.values())
        self.begun[worker] += message.visits
        if self.begun[worker] > most:
            self._progress.begin(self.begun[worker])

    def _visited(self, worker: Worker, message: Visited) -> None:
        self._progress.visited(message.configuration, message.visit, message.cost_s)
