"""Work in a process of its own, which ends with the one that started it.

Work in one process inherits its state: cuBLAS reads its workspace's size once, cuDNN remembers
which algorithms were fast, the allocator keeps its blocks, and where a model's memory lies changes
what it takes. A process that is killed takes its own work along and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from opdb.errors import OpdbError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Pipe: TypeAlias = "Connection[Any, Any]"

START = "spawn"
"""How the process is started: afresh, so that it shares no state of CUDA with this one."""

STOPPED_WITHIN_S = 30.0
"""How long a process that was told to stop may take; then it is killed."""

LISTENED_S = 20.0
"""How often `meanwhile` is called."""


class DiedError(OpdbError):
    """A process was killed, or crashed, before its work was done."""


class Said(str):
    """What a process says while it works."""


Serve: TypeAlias = Callable[..., None]
"""Runs in a process; its last argument is the pipe, into which it sends its result last."""


def done_apart(
    work: Callable[..., object], *given: object, meanwhile: Callable[[], None] = lambda: None
) -> Any:
    """Return what `work(*given)` returns in a process of its own; all of it must be picklable.

    `meanwhile` is called every now and then. Ctrl-C ends the process before it goes on its way.
    """
    [found] = all_apart([(begin, (work, given))], meanwhile=meanwhile)
    if isinstance(found, OpdbError):
        raise found
    return found


def all_apart(
    jobs: Sequence[tuple[Serve, tuple[object, ...]]],
    *,
    hear: Callable[[int, str], None] = lambda number, said: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Do jobs at the same time, a process each; return what each came to, or its OpdbError.

    `hear` is told what a job says, with the job's number.
    """
    from multiprocessing.connection import Connection, wait

    running = [started(serve, *given) for serve, given in jobs]
    left = {pipe: number for number, (_, pipe) in enumerate(running)}
    found: list[Any] = [None] * len(running)
    try:
        while left:
            for pipe in wait(list(left), LISTENED_S):
                assert isinstance(pipe, Connection)
                message = _received(pipe, running[left[pipe]][0])
                if isinstance(message, Said):
                    hear(left[pipe], message)
                else:
                    found[left.pop(pipe)] = message
            meanwhile()
    finally:
        for pipe in left:
            running[left[pipe]][0].terminate()
        for process, pipe in running:
            process.join(STOPPED_WITHIN_S)
            process.kill()
            process.join()
            pipe.close()  # not before: the process would take it for this one's end
    return found


def _received(pipe: Pipe, process: Any) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        process.join(STOPPED_WITHIN_S)
        return DiedError(f"its process ended by itself (exit status {process.exitcode})")


def started(serve: Serve, *given: object) -> tuple[Any, Pipe]:
    """Start a process that runs `serve(*given, pipe)`; return it and this end of the pipe."""
    import multiprocessing  # which takes its time: every command imports this module

    context: Any = multiprocessing.get_context(START)
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(*given, there), name="opdb")
    # The process inherits that it hears no Ctrl-C, its imports too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
    raise KeyboardInterrupt


def _end_with(pipe: Pipe) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOPPED_WITHIN_S)
        os._exit(128 + signal.SIGTERM)
