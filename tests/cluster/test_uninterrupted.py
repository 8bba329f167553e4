"""Ctrl-C while a process is started: it waits, whichever thread the signal reaches."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from opdb.cluster.worker import uninterrupted


def test_ctrl_c_waits_for_the_end_although_another_thread_takes_it() -> None:
    done, ended = False, threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(0.1)
            done = True
    finally:
        ended.set()
        other.join()
    assert done, "it was not interrupted in the middle"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_ctrl_c_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is before
