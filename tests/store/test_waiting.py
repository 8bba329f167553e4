"""Another process holds the database: what is found meanwhile is kept, and stored afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.store import database, open_store
from tests.store import samples
from tests.store.conftest import fill

HOLDING = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[3])
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def held(path: Path, seconds: float, how: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Let another process hold a database's lock for some seconds, or until the block is left."""
    command = [sys.executable, "-c", HOLDING, str(path), str(seconds), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.kill()


@pytest.mark.parametrize("how", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_new_database_waits_for_the_one_who_creates_it(tmp_path: Path, how: str) -> None:
    path = tmp_path / "new.sqlite"
    with held(path, 1.0, how), open_store(str(path)) as store:
        assert store.workloads() == []


def test_what_is_saved_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.sqlite"
    with open_store(str(path)) as store:
        fill(store)
        with held(path, 1.0):
            assert len(store.visits("GPU-1")) == 3  # a writer keeps no reader waiting
            store.save_visit(samples.visit("late"))
        assert len(store.visits("GPU-1")) == 4
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_S", 0.1)
    with (
        open_store(str(path)) as store,
        held(path, 600),
        pytest.raises(DatabaseError, match="another process holds it locked; try again later"),
    ):
        store.save_visit(samples.visit("later"))
