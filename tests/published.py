"""The published sets, each imported once a test run into a database to read from."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from opdb.store import Store, open_store
from opdb.store.deriving import derive_costs
from opdb.store.exchange import import_set
from opdb.store.opening import import_published
from opdb.store.set_reading import read_set
from tests import shared

SET = Path(__file__).parents[1] / "db" / "nvidia-h200"
DEVICE = "nvidia-h200"
EAGER_AND_GRAPH = 53
"""Workloads that one board of the set ran eagerly and as a CUDA graph."""


@cache
def database() -> Path:
    """Return a database that holds the published set and nothing else; write to copies of it."""
    return shared.made_once("published.sqlite", stored(_published))


@cache
def default_database() -> Path:
    """Return a database as the first command in a checkout builds it; write to copies of it."""
    return shared.made_once("default.sqlite", stored(import_published))


@cache
def all_sets() -> Path:
    """Return that database once a command has asked for sweeps, too; write to copies of it."""

    def make(path: Path) -> None:
        shutil.copy(default_database(), path)
        with open_store(str(path)) as store:
            import_published(store, sweeps=True)

    return shared.made_once("all.sqlite", make)


@cache
def database_of(*names: str) -> Path:
    """Return a database that holds these sets of db/; write to copies of it.

    tests/store/test_proving.py proves their costs, and no import need prove them again.
    """

    def fill(store: Store) -> None:
        for name in names:
            path = SET.with_name(name)
            import_set(store, path, contents=read_set(path), source=(name, ""))
        for board in store.boards_of_several_sources():
            derive_costs(store, board)

    return shared.made_once(f"{'+'.join(names)}.sqlite", stored(fill))


def stored(fill: Callable[[Store], object]) -> Callable[[Path], None]:
    """Return what makes a database at a path and lets `fill` put something into it."""

    def make(path: Path) -> None:
        with open_store(str(path)) as store:
            fill(store)

    return make


def _published(store: Store) -> None:
    import_set(store, SET, contents=read_set(SET))


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
