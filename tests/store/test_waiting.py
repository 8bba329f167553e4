"""Another process holds the database: what is found meanwhile is kept, and stored afterwards."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opdb.store import database, open_store
from tests import warm
from tests.paths import python_path
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
def test_a_new_database_waits_for_the_one_who_creates_it(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "new.sqlite"
    with held(path, 1.0, how), open_store(str(path)) as store:
        assert store.workloads() == []
    assert not caplog.records, "so short a wait is not worth a warning"


def test_what_is_saved_waits_for_its_turn_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "SAID_AFTER_S", 0.3)
    path = tmp_path / "some.sqlite"
    with open_store(str(path)) as store:
        fill(store)
        with held(path, 1.5):
            assert len(store.visits("GPU-1")) == 3  # a writer keeps no reader waiting
            store.save_visit(samples.visit("late"))
        assert len(store.visits("GPU-1")) == 4
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert f"database {path}: another process holds it locked" in record.getMessage()


HARVEST = """
import sys
from opdb.cli import main
from opdb.store import database
database.SAID_AFTER_S = 0.5
raise SystemExit(main(sys.argv[1:]))
"""


def harvest(path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        warm.command("-c", HARVEST, "harvest", "mlp", "--db", str(path), *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    )


def test_a_harvest_keeps_its_work_while_the_database_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    with held(path, 600):
        process = harvest(path)
        said = waited_for(process)
        assert process.poll() is None
    out, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "linear" in out
    assert (said + rest).count("another process holds it locked") == 1
    with open_store(str(path)) as store:
        assert [each.name for each in store.workloads("mlp")] == ["mlp"]


def test_ctrl_c_ends_the_wait_at_once_and_says_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    with held(path, 600):
        process = harvest(path)
        waited_for(process)
        process.send_signal(signal.SIGINT)
        struck_s = time.monotonic()
        _, said = process.communicate(timeout=60)
        took_s = time.monotonic() - struck_s
    assert process.returncode == 130
    assert "what waited to be stored is lost" in said and "Traceback" not in said
    assert "what was finished is stored" not in said
    assert took_s < 10
    with open_store(str(path)) as store:
        assert store.workloads("mlp") == []


def waited_for(process: subprocess.Popen[str]) -> str:
    """Read what a process says until it waits for the database."""
    assert process.stderr is not None
    said = ""
    while "another process holds it locked" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said
