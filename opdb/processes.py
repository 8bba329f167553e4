"""Work in a process of its own, which ends with the one that started it.

Work in one process inherits its state: cuBLAS reads its workspace's size once, cuDNN remembers
which algorithms were fast, the allocator keeps its blocks, and where a model's memory lies changes
what it takes. A process that is killed takes its own work along and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, TypeAlias

from opdb.errors import OpdbError

Pipe: TypeAlias = "Connection[Any, Any]"

START = "spawn"
"""How the process is started: afresh, so that it shares no state of CUDA with this one."""

STOPPED_WITHIN_S = 30.0
"""How long a process that was told to stop may take; then it is killed."""

LISTENED_S = 20.0
"""How often `meanwhile` is called."""


class DiedError(OpdbError):
    """A process was killed, or crashed, before its work was done."""


def done_apart(
    work: Callable[..., object], *given: object, meanwhile: Callable[[], None] = lambda: None
) -> Any:
    """Return what `work(*given)` returns in a process of its own; all of it must be picklable.

    `meanwhile` is called every now and then. Ctrl-C ends the process before it goes on its way.
    """
    process, pipe = started(begin, work, given)
    said: list[object] = []
    try:
        while not pipe.poll(LISTENED_S):
            meanwhile()
        said.append(pipe.recv())
    except EOFError:
        pass
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join(STOPPED_WITHIN_S)
        if process.is_alive():
            process.kill()
        process.join()
        pipe.close()  # not before: the process would take it for this one's end
    if not said:
        raise DiedError(_how_it_ended(process.exitcode))
    if isinstance(said[0], OpdbError):
        raise said[0]
    return said[0]


def started(serve: Callable[..., None], *given: object, name: str = "opdb") -> tuple[Any, Pipe]:
    """Start a process that runs `serve(*given, pipe)`; return it and this end of the pipe."""
    context: Any = multiprocessing.get_context(START)
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(*given, there), name=name)
    with uninterrupted():
        process.start()
    there.close()  # so that the pipe ends when the process does
    return process, here


def begin(work: Callable[..., object], given: tuple[object, ...], pipe: Pipe) -> None:
    """Do the work and send what it returns or raises; what runs in the process.

    Ctrl-C reaches every process of a terminal; this one leaves it to the one that started it, and
    ends by SIGTERM, or when the other end of the pipe is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    os.dup2(2, 1)  # models print; stdout is for results
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        pipe.send(_done(work, given))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)
    except BrokenPipeError:
        pass  # nobody listens any more


def _done(work: Callable[..., object], given: tuple[object, ...]) -> object:
    try:
        return work(*given)
    except OpdbError as error:
        kind = next(kind for kind in type(error).__mro__ if "__init__" not in vars(kind))
        return kind(str(error))


def stop(*_: object) -> None:
    """End a process by KeyboardInterrupt; its handler of SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
    raise KeyboardInterrupt


def _end_with(pipe: Pipe) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOPPED_WITHIN_S)
        os._exit(128 + signal.SIGTERM)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its process ended by itself (exit status {status})"
    return f"its process was ended by {signal.Signals(-status).name}"


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
