"""The published set of db/nvidia-h200, imported once a test run into a database to read from."""

from __future__ import annotations

import atexit
import shutil
import tempfile
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
