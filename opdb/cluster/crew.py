"""Workers on several devices of this host, driven by this process.

What is pending they claim from the database, so that no two measure the same. A worker that fails
or dies stops no other: what it left is taken over.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from opdb.bench.platform import Platform
from opdb.bench.request import BenchRequest
from opdb.bench.rounds import Progress
from opdb.bench.run import BenchResult
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
from opdb.cluster.worker import Pipe, serve, uninterrupted
from opdb.errors import CannotMeasureError
from opdb.records import Board
from opdb.runs.table import Spec
from opdb.runs.work import Answer, Work
from opdb.units import show_duration

START = "spawn"
"""How a worker's process is started: afresh, so that it shares no state of CUDA with this one."""

MOST_DEATHS = 2
"""A run of which so many workers died is given to no other."""

SILENT_S = {Bench: 3600.0, Make: 6 * 3600.0}
"""A worker at such a task that tells nothing for so long hangs, and is killed. A bench tells of its
visits; a run, which may be a training, is told of at its end alone."""

LOOK_EVERY_S = 10.0

STOPPED_WITHIN_S = 30.0
"""So long a worker that was told to stop may take to derive its costs; then it is killed."""


@dataclass(eq=False)
class Worker:
    """A worker's process, seen from here.

    It may tell nothing for `silent_s` since `heard_s`, unless it is `idle`: nothing was given to
    it, or it waits for others.
    """

    place: WorkerDevice
    process: BaseProcess
    pipe: Pipe
    platform: Platform | None = None
    failed: str | None = None
    turn: str | None = None
    silent_s: float = math.inf
    heard_s: float = 0.0
    idle: bool = False
    results: list[BenchResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What messages call it: its device."""
        return self.place.name

    def begin(self, silent_s: float, *, idle: bool) -> None:
        """Note that the worker was given something, which it may be silent about for so long."""
        self.silent_s, self.idle, self.heard_s = silent_s, idle, time.monotonic()

    @property
    def hangs(self) -> bool:
        """Whether it has told nothing for longer than its work takes."""
        waits = self.idle or self.turn in ("awaited", "over")
        return not waits and time.monotonic() - self.heard_s > self.silent_s

    def fail(self, why: str) -> None:
        """Keep why the worker failed."""
        self.failed = f"{self.name}: {why}"


class Crew:
    """Workers, one a device, from their start to their end."""

    def __init__(self, places: Sequence[WorkerDevice], url: str) -> None:
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

    @property
    def boards(self) -> list[Board]:
        """The boards that the workers measure on."""
        return [platform.board for platform in self.platforms]

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

    def make(
        self, work: Work[Spec], specs: Sequence[Spec], ask: Callable[[Spec, str], Answer]
    ) -> Iterator[tuple[str, Spec, Any]]:
        """Make runs, each on whichever device is free; yield device, spec and run once saved.

        `ask` hears of each run with its device before it begins. What a worker left that failed is
        made by the others, unless two workers died of it; `failures` tell of it.

        Raises:
            CannotMeasureError: every worker failed.
        """
        left = {spec.key: spec for spec in specs}
        at: dict[Worker, str] = {}
        done: deque[tuple[str, Spec, Any]] = deque()

        def answer(worker: Worker, message: Asked) -> None:
            at[worker] = message.key
            died = [each for each in at if each.failed and at[each] == message.key]
            may = "skip" if len(died) >= MOST_DEATHS else ask(left[message.key], worker.name)
            worker.idle = may != "go"
            _tell(worker, Answered(may))

        def keep(worker: Worker, message: Made) -> None:
            worker.idle = True
            done.append((worker.name, left[message.key], message.run))

        while left and (workers := self.alive):
            self._send(workers, Make(work, tuple(left.values()), len(workers)))
            for _ in self._events(workers, {Asked: answer, Made: keep}):
                while done:
                    device, spec, run = done.popleft()
                    yield device, spec, run
                    del left[spec.key]
            if len(self.alive) == len(workers):
                return
        if left:
            raise CannotMeasureError("; ".join(self.failures))

    def _try_again(self, progress: Progress) -> None:
        """Count on workers again that failed at a task and are still there."""
        for worker in self._workers:
            had_its_device = worker.platform is not None
            if worker.failed is not None and had_its_device and worker.process.is_alive():
                progress.say(f"{worker.failed}; it is tried again")
                worker.failed = None

    # Driving

    def _send(self, workers: Sequence[Worker], task: Bench | Make) -> None:
        for worker in workers:
            worker.turn = None
            worker.begin(SILENT_S[type(task)], idle=isinstance(task, Make))
            _tell(worker, task)

    def _drive(self, workers: Sequence[Worker], handlers: Handlers) -> None:
        for _ in self._events(workers, handlers):
            pass

    def _events(self, workers: Sequence[Worker], handlers: Handlers) -> Iterator[None]:
        """Hear the workers until each has finished, failed or died; yield after each message.

        Ctrl-C stops them all before it goes on its way.
        """
        self._busy = [worker for worker in workers if worker.failed is None]
        looked_s = time.monotonic()
        try:
            while self._busy:
                ready = wait([worker.pipe for worker in self._busy], LOOK_EVERY_S)
                looked_s, before_s = time.monotonic(), looked_s
                if looked_s - before_s > 60.0 + LOOK_EVERY_S:  # all was stopped, as by Ctrl-Z
                    for worker in self._busy:
                        worker.heard_s = looked_s
                for worker in [worker for worker in self._busy if worker.pipe in ready]:
                    self._hear(worker, handlers)
                    yield
                for worker in [worker for worker in self._busy if worker.hangs]:
                    worker.process.kill()
                    worker.fail(
                        f"it told nothing for {show_duration(worker.silent_s)} and was ended; "
                        "look at nvidia-smi and opdb doctor before it is used again"
                    )
                    self._done(worker)
        except KeyboardInterrupt:
            self._stop()
            raise

    def _hear(self, worker: Worker, handlers: Handlers) -> None:
        worker.heard_s = time.monotonic()
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
        self._done(worker)

    def _done(self, worker: Worker) -> None:
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
            worker.heard_s = time.monotonic()
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


def _started(place: WorkerDevice, url: str) -> Worker:
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
