"""An end for commands that Ctrl-C does not reach: a library may swallow it, or never come back."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE_S = 30.0
"""So long may a command that was asked to end take to tidy up. Then it ends as it is: what is
stored is stored whole, and what is derived from it is derived the next time."""

_ASKED = bytes((signal.SIGINT, signal.SIGTERM))
_DONE = b"\0"


@contextmanager
def ended_at_last(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` where such a block goes on for too long after SIGINT or SIGTERM.

    `end` is called in another thread, for the first one may hang. Python tells of a signal there
    at once, even while its handler waits for a call to return. Of the main thread alone.
    """
    owner = os.getpid()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    waiting = threading.Thread(target=_wait, args=(reading, PATIENCE_S, end), daemon=True)
    waiting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        if os.getpid() == owner:  # and not a process that was forked off inside
            with suppress(BlockingIOError):  # thousands of signals, and none of them read
                os.write(writing, _DONE)
            waiting.join()
        os.close(writing)
        os.close(reading)


def _wait(reading: int, patience_s: float, end: Callable[[], None]) -> None:
    until_s: float | None = None
    while True:
        left_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
        if not select.select([reading], [], [], left_s)[0]:
            end()
            return
        told = os.read(reading, 64)
        if not told or _DONE in told:
            return
        if until_s is None and any(number in _ASKED for number in told):
            until_s = time.monotonic() + patience_s


def _forget() -> None:
    """Let a process that is forked off tell nobody of its own signals."""
    signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget)
