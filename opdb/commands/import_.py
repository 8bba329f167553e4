"""`opdb import`: published sets, and the databases of jobs, into the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.cli import options
from opdb.cli.console import note, show
from opdb.errors import InputError
from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.store import Store
    from opdb.store.exchange import Imported

PANEL = "data"

ONE: Table[tuple[str, int, int]] = Table(
    Column(title="table", get=lambda row: row[0]),
    Column(title="rows", get=lambda row: row[1]),
    Column(title="new", get=lambda row: row[2]),
)
"""A table of a set: its rows, and how many of them were new."""


@dataclass(frozen=True)
class LoadedSet:
    """A set, or a database of a job, that was taken in; `imported` counts its rows."""

    path: Path
    imported: Imported

    def to_dict(self) -> dict[str, Json]:
        found, added = self.imported.found, self.imported.added
        return {"path": str(self.path), "found": dict(found), "added": dict(added)}


def _new(name: str) -> Column[LoadedSet]:
    """Return the column of how many new rows a table of a set had."""
    title = f"new {name.replace('_', ' ')}"
    return Column(title=title, get=lambda each: each.imported.added.get(name, 0))


SETS: Table[LoadedSet] = Table(
    Column(title="imported", text=lambda each: each.path),
    *map(_new, ("campaigns", "visits", "host_visits", "model_runs")),
)
"""A set that was taken in, beside others."""


@dataclass(frozen=True, repr=False)
class Loaded(Report):
    """Sets that were taken into a database, and why others were not."""

    location: str
    sets: Sequence[LoadedSet]
    errors: Sequence[str]

    def check(self) -> None:
        """Raise where a set could not be taken, in one message.

        Raises:
            InputError: one could not.
        """
        if self.errors:
            raise InputError("\n".join(self.errors))

    def rows(self) -> list[dict[str, Json]]:
        return [each.to_dict() for each in self.sets]

    def to_dict(self) -> dict[str, Json]:
        return {"database": self.location, "imports": self.rows()}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield of one set a row a table, of several a row a set."""
        if len(self.sets) != 1:
            yield f"{len(self.sets)} imported into {self.location}"
            yield Rows(SETS, self.sets)
            return
        [one] = self.sets
        found, added = one.imported.found, one.imported.added
        yield f"{one.path} imported into {self.location}"
        yield Rows(ONE, [(name, found[name], added[name]) for name in found])


def load(
    *paths: str | Path,
    db: str | None = None,
    tell: Callable[[str], object] | None = None,
    check: bool = True,
) -> Loaded:
    """Take published sets, and databases that jobs wrote, into a database, as `opdb import` does.

    What is there already is left as it is. A set comes in whole or not at all, and one that cannot
    be taken stops no other.

    Raises:
        InputError: none can be read, or the database cannot be opened; with `check`, one could not
            be taken.
    """
    from opdb.store import open_store
    from opdb.store.deriving import derive_pooled
    from opdb.store.exchange import incoming, merge

    errors: list[str] = []
    ready: list[tuple[Path, Store]] = []
    sets = []
    with ExitStack() as opened:
        for path in map(Path, paths):  # all are read before a database is created for them
            try:
                ready.append((path, opened.enter_context(incoming(path))))
            except InputError as error:
                errors.append(str(error))
        if not ready:
            raise InputError("\n".join(errors))
        store = opened.enter_context(open_store(db))
        for path, found in ready:
            try:
                sets.append(LoadedSet(path, merge(store, found, path)))
            except InputError as error:
                errors.append(f"{path}: {error}")
        boards = store.boards_of_several_sources()
        if boards and tell is not None:
            tell("deriving costs from the visits of all")
        left = derive_pooled(store, boards)
        if left and tell is not None:
            tell(
                f"costs of {', '.join(left)} stay as each set has them: raw samples of some visits "
                "were left out of what came with opdb"
            )
        loaded = Loaded(store.location, sets, errors)
    if check:
        loaded.check()
    return loaded


def run(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Folders of published sets, or SQLite files of jobs."),
    ],
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take published sets, and the databases that jobs wrote each for itself, into the database.

    What is there already stays: twice is once. Every value is checked and every key recomputed; a
    set comes in whole or not at all, and one that cannot be taken stops no other.
    """
    found = load(*paths, db=db, tell=partial(note, quiet=quiet), check=False)
    show(found, as_json=as_json)
    found.check()
