"""The published sets, each imported once a test run into a database to read from."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from opdb.store import Store, open_store
from opdb.store.costs import derive_costs, derive_pooled
from opdb.store.opening import import_published
from opdb.store.sets import incoming, merge, opened, put_samples
from tests import shared

SET = Path(__file__).parents[1] / "db" / "nvidia-h200"
MODES = SET.with_name("nvidia-h200-modes")
DEVICE = "nvidia-h200"


@cache
def database() -> Path:
    """Return a database that holds the published set and nothing else; write to copies of it."""
    return shared.made_once("published.sqlite", stored(partial(_put, path=SET)))


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
def with_apart() -> Path:
    """Return the default database with the sets that lie apart; write to copies of it.

    It holds all that was ever published of the device, as docs/accuracy.md says how to make it.
    """

    def make(path: Path) -> None:
        shutil.copy(default_database(), path)
        with open_store(str(path)) as store:
            for each in sorted(SET.with_name("apart").iterdir()):
                _put(store, each, (each.name, ""))
            assert not derive_pooled(store, store.boards_of_several_sources())

    return shared.made_once("apart.sqlite", make)


@cache
def database_of(*names: str) -> Path:
    """Return a database that holds these sets of db/; write to copies of it."""

    def fill(store: Store) -> None:
        for name in names:
            _put(store, SET.with_name(name), (name, ""))
        assert not derive_pooled(store, store.boards_of_several_sources())

    return shared.made_once(f"{'+'.join(names)}.sqlite", stored(fill))


IN_BOTH = "GPU-75cac6db-5643-e261-c7db-e2e9f28a637e"
"""The board of `-modes` that measured compiled models first, and then ViT in all modes."""

OF_COMPILED = f"""
    substr(board, 1, 12) IN ('GPU-3f3e6250', 'GPU-60a53cd2', 'GPU-7628e9a4', 'GPU-cc106408')
    OR board = '{IN_BOTH}' AND started_at < '2026-11-23T03:35'
"""
"""The campaigns of `-modes` that measured compiled models, as an SQL condition."""


@cache
def compiled_models() -> Path:
    """Return a database of the compiled models of `-modes` alone; write to copies of it."""
    return shared.made_once("compiled.sqlite", partial(_part_of_modes, OF_COMPILED))


@cache
def modes() -> Path:
    """Return a database of the models of `-modes` in all modes alone; write to copies of it."""
    return shared.made_once("modes.sqlite", partial(_part_of_modes, f"NOT ({OF_COMPILED})"))


def _part_of_modes(campaigns: str, path: Path) -> None:
    """Make a database of some campaigns, and of the costs that follow from their visits."""
    shutil.copy(database_of(MODES.name), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"DELETE FROM campaign WHERE NOT ({campaigns})")
        connection.execute("DELETE FROM cost WHERE board NOT IN (SELECT board FROM campaign)")
    with open_store(str(path)) as store:
        derive_costs(store, IN_BOTH)


def stored(fill: Callable[[Store], object]) -> Callable[[Path], None]:
    """Return what makes a database at a path and lets `fill` put something into it."""

    def make(path: Path) -> None:
        with open_store(str(path)) as store:
            fill(store)

    return make


def _put(store: Store, path: Path, source: tuple[str, str] | None = None) -> None:
    """Take a set in with its raw samples; tests/store/test_proving.py proves its costs."""
    with opened(path, trusted=True) as found:
        with found.writing() as connection:
            put_samples(connection, path)
        merge(store, found, path, source)


def import_set(store: Store, path: Path) -> dict[str, int]:
    """Take in a set, or a job's database, as `opdb import` does."""
    with incoming(path) as found:
        return merge(store, found, path)


def copy_to(path: Path) -> Path:
    shutil.copy(database(), path)
    return path


def keep_kinds(path: Path, *kinds: str) -> None:
    """Remove the costs and visits of all other kinds from a copy."""
    places = ", ".join("?" * len(kinds))
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("cost", "visit", "host_visit"):
            connection.execute(
                f"DELETE FROM {table} WHERE configuration_id IN "
                f"(SELECT id FROM configuration WHERE kind NOT IN ({places}))",
                kinds,
            )
