"""Harvest many models, in several processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opdb.bench.harvests import standing
from opdb.errors import InputError, OpdbError
from opdb.models import ModelRequest
from opdb.records import CAPTURED_MODE, Mode, Workload

if TYPE_CHECKING:
    from opdb.harvest import Harvest
    from opdb.store import Store

WORTH_A_PROCESS = 8
"""Requests from which a process of its own pays: it imports torch first, some seconds."""

MOST_PROCESSES = 4
"""Each holds a model's modules: some 0.8 GB."""

Tell = Callable[[ModelRequest], None]


@dataclass(frozen=True)
class Harvested:
    """A request and what came of it: a workload, or why there is none.

    `captured` is what the model calls while a CUDA graph captures it, where that is something else,
    `failure` why that is not known of a model that asks whether it is captured. A harvest of the
    same `fingerprint` finds the same.
    """

    request: ModelRequest
    workload: Workload | None
    error: OpdbError | None = None
    captured: Workload | None = None
    failure: str | None = None
    fingerprint: str | None = None

    @classmethod
    def of(cls, request: ModelRequest, found: Harvest) -> Harvested:
        """Return a request with what a harvest of it found."""
        return cls(request, found.workload, None, found.captured, found.failure, found.fingerprint)

    def called_in(self, mode: Mode) -> Workload:
        """Return what the model that was harvested calls in a mode."""
        assert self.workload is not None
        captured = self.captured if mode == CAPTURED_MODE else None
        return captured or self.workload


def harvested(store: Store, requests: Sequence[ModelRequest], tell: Tell) -> dict[str, Harvested]:
    """Return what came of each request, by its `repr`: stored by today's code, or harvested now.

    What is harvested now is not saved. `tell` hears of each as it is done.
    """
    stored = {repr(request): standing(store, request) for request in requests}
    lacking = [request for request in requests if stored[repr(request)] is None]
    found = {repr(one.request): one for one in gather(lacking, tell)}
    for request in requests:
        if (known := stored[repr(request)]) is not None:
            found[repr(request)] = Harvested.of(request, known)
            tell(request)
    return found


def gather(
    requests: Sequence[ModelRequest], tell: Tell = lambda _: None, processes: int | None = None
) -> list[Harvested]:
    """Harvest each request, in the order given; one that fails does not stop the others.

    `tell` hears of each as it is done; `processes` defaults to what the machine and the number
    of requests suggest.
    """
    count = _processes(len(requests)) if processes is None else processes
    if count <= 1:
        return [_here(request, tell) for request in requests]
    found = _in_processes(requests, tell, count)
    # A process that was killed takes its neighbours' work along: what is left gets one each.
    return [
        one
        if one is not None
        else _in_processes([request], tell, 1, last=True)[0] or _lost(request)
        for request, one in zip(requests, found, strict=True)
    ]


def _processes(requests: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MOST_PROCESSES, requests // WORTH_A_PROCESS)


def _here(request: ModelRequest, tell: Tell) -> Harvested:
    found = _harvested(request)
    tell(request)
    return found


def _harvested(request: ModelRequest) -> Harvested:
    from opdb.harvest import harvest_in_both

    try:
        return Harvested.of(request, harvest_in_both(request))
    except OpdbError as error:
        # As text: errors with arguments of their own do not survive the way between processes.
        return Harvested(request, None, InputError(str(error)))


def _in_processes(
    requests: Sequence[ModelRequest], tell: Tell, count: int, *, last: bool = False
) -> list[Harvested | None]:
    """Harvest in processes; None for what was lost with a process that died."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    try:
        futures = [pool.submit(_harvested, request) for request in requests]
        return [
            _result(request, future, tell, last=last)
            for request, future in zip(requests, futures, strict=True)
        ]
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C the models under way alone are waited for


def _begin() -> None:
    """Prepare a process: one thread; Ctrl-C and stdout are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr
    import torch

    torch.set_num_threads(1)


def _result(
    request: ModelRequest, future: Future[Harvested], tell: Tell, *, last: bool
) -> Harvested | None:
    failure = future.exception()
    if isinstance(failure, BrokenProcessPool):
        if last:
            tell(request)
        return None
    tell(request)
    if failure is not None:
        error = InputError(f"{request.name!r}: {type(failure).__name__}: {failure}")
        return Harvested(request, None, error)
    found = future.result()
    return replace(found, request=request)


def _lost(request: ModelRequest) -> Harvested:
    error = InputError(f"{request.name!r}: the process that harvested it was killed (memory?)")
    return Harvested(request, None, error)
