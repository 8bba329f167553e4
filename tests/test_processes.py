"""Ctrl-C while a process is started, and garbage that is not searched meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from opdb.processes import uninterrupted


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


def test_what_a_command_made_is_never_searched() -> None:
    program = """
import gc
from opdb.garbage import gc_off_to_the_end
with gc_off_to_the_end():
    made = [[] for _ in range(10_000)]
assert gc.isenabled() and gc.get_freeze_count() > 10_000, gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
