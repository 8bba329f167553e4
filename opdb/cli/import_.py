"""`opdb import`: published sets, and shards, into the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import note, print_json, print_table
from opdb.errors import InputError
from opdb.records import Json

if TYPE_CHECKING:
    from opdb.store import Store
    from opdb.store.exchange import Imported


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

    What is there already stays: twice is once. Every row is checked and every key recomputed; a
    set comes in whole or not at all, and one that cannot be taken stops no other.
    """
    from opdb.store import open_store
    from opdb.store.deriving import derive_costs

    errors: list[str] = []
    ready = [each for path in paths if (each := _read(path, errors)) is not None]
    if not ready:
        raise InputError("\n".join(errors))
    with open_store(db) as store:
        done = [taken for one in ready if (taken := _taken(store, one, errors)) is not None]
        location = store.location
        shards = [path for path, new in done if path.is_file() and new.added.get("visits")]
        boards = _boards(store, shards)
        if boards:
            note("deriving costs from the visits of all", quiet=quiet)
        for board in sorted(boards):
            derive_costs(store, board)
    documents = [_document(*each) for each in done]
    if as_json:
        one = len(paths) == 1 and documents
        print_json({"database": location, **(documents[0] if one else {"imports": documents})})
    else:
        _print(done, location)
    if errors:
        raise InputError("\n".join(errors))


@dataclass(frozen=True)
class _Ready:
    """What was looked at before a database is created for it."""

    path: Path
    take: Callable[[Store], Imported]


def _read(path: Path, errors: list[str]) -> _Ready | None:
    from opdb.store.exchange import import_set
    from opdb.store.set_reading import read_set
    from opdb.store.shards import check_shard, import_shard, is_shard

    try:
        if is_shard(path):
            check_shard(path)
            return _Ready(path, partial(import_shard, path=path))
        return _Ready(path, partial(import_set, folder=path, contents=read_set(path)))
    except InputError as error:
        errors.append(str(error))
        return None


def _taken(store: Store, ready: _Ready, errors: list[str]) -> tuple[Path, Imported] | None:
    try:
        return ready.path, ready.take(store)
    except InputError as error:
        errors.append(f"{ready.path}: {error}")
        return None


def _boards(store: Store, shards: list[Path]) -> set[str]:
    """Return the boards whose visits may lie in several sets, or in several of these shards."""
    from opdb.store import open_store

    boards = set(store.boards_of_several_sources())
    for path in shards:
        with open_store(str(path), create=False) as shard:
            boards |= {board.uuid for board in shard.boards()}
    return boards


def _document(path: Path, imported: Imported) -> dict[str, Json]:
    what = "shard" if path.is_file() else "folder"
    return {what: str(path), "found": dict(imported.found), "added": dict(imported.added)}


def _print(done: list[tuple[Path, Imported]], location: str) -> None:
    if len(done) == 1:
        [(path, imported)] = done
        if not imported.found:
            print(f"{path}: nothing was measured in it, so nothing is imported")
            return
        print(f"{path} imported into {location}")
        rows = [(f"{n}.csv", imported.found[n], imported.added[n]) for n in imported.found]
        print_table(("file", "rows", "new"), rows)
    elif done:
        print(f"{len(done)} imported into {location}")
        new = ("campaigns", "visits", "host_visits", "model_runs")
        each = [(path, *(imported.added.get(name, 0) for name in new)) for path, imported in done]
        header = ("imported", *(f"new {name.replace('_', ' ')}" for name in new))
        print_table(header, each)
