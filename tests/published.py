"""The published set of db/nvidia-h200, imported once a test run into a database to read from."""

from __future__ import annotations

import atexit
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from opdb.store import open_store
from opdb.store.exchange import import_set

SET = Path(__file__).parents[1] / "db" / "nvidia-h200"
DEVICE = "nvidia-h200"
EAGER_AND_GRAPH = 53
"""Workloads that one board of the set ran eagerly and as a CUDA graph."""


@cache
def database() -> Path:
    """Return a database that holds the published set and nothing else; write to copies of it."""
    folder = tempfile.mkdtemp(prefix="opdb-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "published.sqlite")
    with open_store(str(path)) as store:
        import_set(store, SET)
    return path


def copy_to(path: Path) -> Path:
    """Copy the database to a path of one's own."""
    shutil.copy(database(), path)
    return path


def keep_kinds(path: Path, *kinds: str) -> None:
    """Remove the costs and visits of all other kinds from a copy."""
    places = ", ".join("?" * len(kinds))
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("cost", "visit", "host_visit", "tally"):
            connection.execute(
                f"DELETE FROM {table} WHERE configuration_id IN "
                f"(SELECT id FROM configuration WHERE kind NOT IN ({places}))",
                kinds,
            )
