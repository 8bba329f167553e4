"""Ctrl-C wherever it strikes in a save: what follows it can write, at once."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

from opdb.errors import DatabaseError
from opdb.garbage import gc_paused
from opdb.records import Configuration
from opdb.store import Store, open_store
from opdb.store import database as module


def _made(elements: int) -> Configuration:
    return Configuration("relu", {}, {"input": {"shape": [elements], "dtype": "float32"}})


class _Struck:
    """Raises KeyboardInterrupt at the nth call or return that the interpreter comes to."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _frame: FrameType, _event: str, given: Any) -> None:
        self.left -= given is not sys.setprofile  # what ends it is let go on
        if self.left == 0:
            raise KeyboardInterrupt


def _save(store: Store, elements: int, at: int) -> tuple[bool, BaseException | None]:
    """Save a configuration, interrupted at the nth event; return if it came, and what of it."""
    strike, came_of_it = _Struck(at), None
    with gc_paused():  # what strikes while garbage is collected is printed and lost
        sys.setprofile(strike)
        try:
            store.save_configurations([_made(elements)])
        except BaseException as error:  # noqa: BLE001 - a library may make another error of it
            came_of_it = error
        finally:
            sys.setprofile(None)
    return strike.left <= 0, came_of_it


def _strike_everywhere(path: str) -> tuple[int, list[tuple[int, str]]]:
    """Interrupt a save at each event; return how many were told, and what was locked after one."""
    module._BUSY_TIMEOUT_S = 0.05  # a lock left behind is an error soon
    at, ended, locked = 0, 0, []
    struck = True
    while struck:
        at += 1
        with open_store(path) as store:
            # The error is kept meanwhile, and with it all that it refers to: as in a `finally`.
            struck, error = _save(store, at, at)
            ended += isinstance(error, KeyboardInterrupt)
            store._hurried = True  # it waits for no lock that was left behind
            try:
                store.save_configurations([_made(10**6 + at)])
            except DatabaseError as failure:
                locked.append((at, str(failure)))
    return ended, locked


def test_what_tidies_up_waits_for_no_interrupted_save(tmp_path: Path) -> None:
    """In a process of its own: an event is raised where no signal is, in `Lock.__enter__` too."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        path = str(tmp_path / "opdb.sqlite")
        ended, locked = processes.submit(_strike_everywhere, path).result()
    assert ended > 100, "most that strikes is told"
    assert locked == []
