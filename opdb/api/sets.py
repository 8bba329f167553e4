"""Published sets: a device's measurements written as CSV files, and taken into a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.commands.predict import Tell
from opdb.errors import InputError
from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.store import Store
    from opdb.store.exchange import Imported


@dataclass(frozen=True)
class SetFile:
    """A file of a set: its rows, and of those taken in how many were new."""

    name: str
    rows: int
    new: int | None = None


FILES: Table[SetFile] = Table(
    Column("file", lambda file: file.name, title="file"),
    Column("rows", lambda file: file.rows, title="rows"),
    Column(title="new", get=lambda file: file.new),
)
"""A file of a set."""


@dataclass(frozen=True, repr=False)
class Exported(Report):
    """Measurements that were written: folder, device, and the rows of each file."""

    folder: Path
    device: str
    counts: Mapping[str, int]

    def rows(self) -> list[dict[str, Json]]:
        """Return each file with how many rows it has."""
        return FILES.documents(self._files())

    def _files(self) -> list[SetFile]:
        return [SetFile(f"{name}.csv", count) for name, count in self.counts.items()]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb export --json` prints."""
        return {"folder": str(self.folder), "device": self.device, "rows": dict(self.counts)}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a row a file."""
        yield f"{self.device} written to {self.folder}"
        yield Rows(FILES.without("new"), self._files())


@dataclass(frozen=True)
class LoadedSet:
    """A set, or a shard of a job, that was taken in; `imported` counts its rows, found and new."""

    path: Path
    imported: Imported

    def to_dict(self) -> dict[str, Json]:
        """Return the set and its rows as data."""
        what = "shard" if self.path.is_file() else "folder"
        found, added = self.imported.found, self.imported.added
        return {what: str(self.path), "found": dict(found), "added": dict(added)}


def _new(name: str) -> Column[LoadedSet]:
    """Return the column of how many new rows a file of a set had."""
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
    errors: Sequence[str] = ()
    asked: int = 1

    def check(self) -> None:
        """Raise where a set could not be taken, in one message.

        Raises:
            InputError: one could not.
        """
        if self.errors:
            raise InputError("\n".join(self.errors))

    def rows(self) -> list[dict[str, Json]]:
        """Return each set with the rows it has and those that were new."""
        return [each.to_dict() for each in self.sets]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb import --json` prints."""
        one = self.asked == 1 and self.sets
        return {"database": self.location} | (self.rows()[0] if one else {"imports": self.rows()})

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield of one set a row a file, of several a row a set."""
        if len(self.sets) == 1:
            path, imported = self.sets[0].path, self.sets[0].imported
            if not imported.found:
                yield f"{path}: nothing was measured in it, so nothing is imported"
                return
            files = [
                SetFile(f"{n}.csv", rows, imported.added[n]) for n, rows in imported.found.items()
            ]
            yield f"{path} imported into {self.location}"
            yield Rows(FILES, files)
            return
        yield f"{len(self.sets)} imported into {self.location}"
        yield Rows(SETS, self.sets)


def export(
    folder: str | Path,
    *,
    device: str | None = None,
    licence: str | None = None,
    db: str | None = None,
) -> Exported:
    """Write a device's measurements into a folder with a manifest, as `opdb export FOLDER` does.

    `device` may be left out where the database holds only one. `licence` is stated in the manifest;
    when None, that of the sets that the measurements came from.

    Raises:
        InputError: there is no such device, or several and none is named; or the folder cannot be
            written.
    """
    from opdb.predict.predictor import choose_device
    from opdb.store import open_store
    from opdb.store.database import set_files
    from opdb.store.exchange import export_set
    from opdb.store.manifest import write_manifest
    from opdb.store.origins import about_set

    folder = Path(folder)
    with open_store(db, create=False) as store:
        known = [found.slug for found in store.devices()]
        if device is None and len(known) > 1:
            raise InputError(
                f"{store.location} holds {len(known)} devices ({', '.join(known)}); name one "
                "with --device"
            )
        device = choose_device(store, device).slug
        about = about_set(store, device, licence)
        rows = export_set(store, folder, device=device)
        try:
            write_manifest(folder, [path.name for path in set_files(folder)], about)
        except OSError as error:
            raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return Exported(folder, device, rows)


def load(*paths: str | Path, db: str | None = None, tell: Tell | None = None) -> Loaded:
    """Take published sets, and databases that jobs wrote, into a database, as `opdb import` does.

    What is there already is left as it is. A set comes in whole or not at all.

    Raises:
        InputError: a set could not be taken; the others are.
    """
    found = load_all([Path(path) for path in paths], db=db, tell=tell)
    found.check()
    return found


def load_all(paths: Sequence[Path], *, db: str | None = None, tell: Tell | None = None) -> Loaded:
    """Take sets into a database; one that cannot be taken stops no other, and is an error.

    Raises:
        InputError: none can be read, or the database cannot be opened.
    """
    from opdb.store import open_store
    from opdb.store.deriving import derive_pooled

    errors: list[str] = []
    ready = [each for path in paths if (each := _read(path, errors)) is not None]
    if not ready:
        raise InputError("\n".join(errors))
    with open_store(db) as store:
        done = [taken for one in ready if (taken := _taken(store, one, errors)) is not None]
        shards = [d.path for d in done if d.path.is_file() and d.imported.added.get("visits")]
        boards = _boards(store, shards)
        if boards and tell is not None:
            tell("deriving costs from the visits of all")
        left = derive_pooled(store, boards)
        if left and tell is not None:
            tell(
                f"costs of {', '.join(left)} stay as each set has them: raw samples of some visits "
                "were left out of what came with opdb"
            )
        return Loaded(store.location, done, errors, len(paths))


@dataclass(frozen=True)
class _Ready:
    """A set that was looked at before a database is created for it."""

    path: Path
    take: Callable[[Store], Imported]


def _read(path: Path, errors: list[str]) -> _Ready | None:
    from opdb.store.exchange import import_set
    from opdb.store.proving import proved
    from opdb.store.published import is_packaged
    from opdb.store.set_reading import read_set
    from opdb.store.shards import check_shard, import_shard, is_shard

    try:
        if is_shard(path):
            check_shard(path)
            return _Ready(path, partial(import_shard, path=path))
        contents = read_set(path)
        contents = contents if is_packaged(path) else proved(contents)
        return _Ready(path, partial(import_set, folder=path, contents=contents))
    except InputError as error:
        errors.append(str(error))
        return None


def _taken(store: Store, ready: _Ready, errors: list[str]) -> LoadedSet | None:
    try:
        return LoadedSet(ready.path, ready.take(store))
    except InputError as error:
        errors.append(f"{ready.path}: {error}")
        return None


def _boards(store: Store, shards: Sequence[Path]) -> set[str]:
    """Return the boards whose visits may lie in several sets, or in several of these shards."""
    from opdb.store import open_store

    boards = set(store.boards_of_several_sources())
    for path in shards:
        with open_store(str(path), create=False) as shard:
            boards |= {board.uuid for board in shard.boards()}
    return boards
