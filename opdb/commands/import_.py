"""`opdb import`: published sets, and the databases of jobs, into the database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.cli import options
from opdb.errors import InputError
from opdb.tables import Column, Listing, Rows, Table

if TYPE_CHECKING:
    from opdb.store import Store

PANEL = "data"

Took: TypeAlias = tuple[Path, dict[str, int]]
"""A set, or a database of a job, that was taken in, and its new rows by table."""


def _new(name: str) -> Column[Took]:
    return Column(title=f"new {name.replace('_', ' ')}", get=lambda row: row[1][name])


SETS: Table[Took] = Table(
    Column("path", lambda row: str(row[0]), title="imported"),
    Column("added", lambda row: row[1]),
    *map(_new, ("campaigns", "visits", "host_visits", "model_runs")),
)


def load(
    *paths: str | Path,
    db: str | None = None,
    tell: Callable[[str], object] | None = None,
    check: bool = True,
) -> Listing:
    """Take published sets, and databases that jobs wrote, into a database, as `opdb import` does.

    What is there already is left as it is. A set comes in whole or not at all, and one that cannot
    be taken stops no other.
    """
    from opdb.store import open_store
    from opdb.store.costs import derive_pooled
    from opdb.store.sets import incoming, merge

    errors: list[str] = []
    ready: list[tuple[Path, Store]] = []
    sets: list[Took] = []
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
                sets.append((path, merge(store, found, path)))
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
        document = {"database": store.location, "imports": SETS.documents(sets)}
        line = f"{len(sets)} imported into {store.location}"
    failure = InputError("\n".join(errors)) if errors else None
    loaded = Listing(document, [line, Rows(SETS, sets)], failure)
    if check:
        loaded.check()
    return loaded


def run(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Folders of published sets, or SQLite files of jobs."),
    ],
    out: options.Output = options.Output(),
) -> None:
    """Take published sets, and the databases that jobs wrote each for itself, into the database.

    What is there already stays: twice is once. Every value is checked and every key recomputed; a
    set comes in whole or not at all, and one that cannot be taken stops no other.
    """
    out.answer(load(*paths, db=out.db, tell=out.note, check=False))
