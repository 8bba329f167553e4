"""Ctrl-C wherever it strikes in a save: what follows it can write, at once."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from opdb.errors import DatabaseError
from opdb.garbage import uncollected
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
    with uncollected():  # what strikes while garbage is collected is printed and lost
        sys.setprofile(strike)
        try:
            store.save_configurations([_made(elements)])
        except BaseException as error:  # noqa: BLE001 - a library may make another error of it
            came_of_it = error
        finally:
            sys.setprofile(None)
    return strike.left <= 0, came_of_it


def test_what_tidies_up_waits_for_no_interrupted_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_TIMEOUT_S", 0.05)  # a lock left behind is an error soon
    path, at, ended, locked = str(tmp_path / "opdb.sqlite"), 0, 0, []
    struck = True
    while struck:
        at += 1
        with open_store(path) as store:
            # The error is kept meanwhile, and with it all that it refers to: as in a `finally`.
            struck, error = _save(store, at, at)
            ended += isinstance(error, KeyboardInterrupt)
            try:
                store.save_configurations([_made(10**6 + at)])
            except DatabaseError as failure:
                locked.append((at, str(failure)))
    assert ended > 100, "most that strikes is told"
    assert locked == []
