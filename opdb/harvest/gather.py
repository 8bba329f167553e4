"""Harvest many models, in several processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from opdb.errors import InputError, OpdbError
from opdb.harvest import harvest_in_both
from opdb.models import ModelRequest
from opdb.records import Harvest

WORTH_A_PROCESS = 8
"""Requests from which a process of its own pays: it imports torch first, some seconds."""

MOST_PROCESSES = 4
"""Each holds a model's modules: some 0.8 GB."""


def gather(
    requests: Sequence[ModelRequest], processes: int | None = None
) -> Iterator[Harvest | OpdbError]:
    """Harvest each request; yield what was found, or why nothing was, in the order given.

    A request that fails does not stop the others. `processes` defaults to what the machine and the
    number of requests suggest.
    """
    count = _processes(len(requests)) if processes is None else processes
    return _in_processes(requests, count) if count > 1 else map(_harvested, requests)


def _processes(requests: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MOST_PROCESSES, requests // WORTH_A_PROCESS)


def _harvested(request: ModelRequest) -> Harvest | OpdbError:
    try:
        return harvest_in_both(request)
    except OpdbError as error:
        return error


def _as_text(request: ModelRequest) -> Harvest | OpdbError:
    """Harvest in a process: errors with arguments of their own do not survive the way back."""
    found = _harvested(request)
    return InputError(str(found)) if isinstance(found, OpdbError) else found


def _in_processes(requests: Sequence[ModelRequest], count: int) -> Iterator[Harvest | OpdbError]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    try:
        futures = [pool.submit(_as_text, request) for request in requests]
        for request, future in zip(requests, futures, strict=True):
            yield _result(request, future, alone=count == 1)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C the models under way alone are waited for


def _begin() -> None:
    """Prepare a process: one thread; Ctrl-C and stdout are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr
    import torch

    torch.set_num_threads(1)


def _result(
    request: ModelRequest, future: Future[Harvest | OpdbError], *, alone: bool
) -> Harvest | OpdbError:
    failure = future.exception()
    if failure is None:
        return future.result()
    if not isinstance(failure, BrokenProcessPool):
        return InputError(f"{request.name!r}: {type(failure).__name__}: {failure}")
    if alone:
        return InputError(f"{request.name!r}: the process that harvested it was killed (memory?)")
    # A process that was killed takes its neighbours' work along: what is left gets one each.
    [found] = _in_processes([request], 1)
    return found
