"""Open a database; the default one takes in the checkout's published sets when they change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sqlalchemy import select

from opdb.errors import DatabaseError
from opdb.store import database, schema
from opdb.store.store import Store

SWEEPS = "-sweeps"
"""How the names of sets end that hold sweeps and convolutions by algorithm, nothing usual."""


def open_store(url: str | None = None, *, create: bool = True, sweeps: bool = False) -> Store:
    """Open a database: the one named, else `OPDB_DB`'s, else the default one.

    A new database is created. The default one, and no other, takes in every published set of the
    checkout's `db/*/` that it has not seen as it now is; where there is none yet, it is built of
    them aside and put in place when it is whole. Sets of sweeps are taken in with `sweeps` alone:
    a usual prediction needs nothing of them, and need not wait for them.

    Raises:
        DatabaseError: it cannot be used; or it was named, there is none, and `create` is false.
        InputError: a published set cannot be imported.
    """
    if url is not None and not url.strip():
        raise DatabaseError(f"database {url!r}: give a file or a URL")
    named = url or os.environ.get("OPDB_DB")
    location = database.as_url(named) if named else database.default_url()
    if not named:
        build_published(location)
    with ExitStack() as undo:
        store = undo.enter_context(
            Store(location, database.connect(location, create=create or not named))
        )
        if not named:
            import_published(store, sweeps=sweeps)
        undo.pop_all()
    return store


def build_published(location: str) -> None:
    """Build the default database (a URL) of the published sets, where there is none yet.

    Written aside it needs no journal, and a process that is killed leaves no half of one. Of
    several that want it at once, one builds it and the others wait.

    Raises:
        DatabaseError: it cannot be written.
        InputError: a set cannot be imported.
    """
    file = database.file_of(location)
    if file is None or file.exists() or not published_sets():
        return
    if database.journal_of(file).exists():
        return  # of one that was deleted: SQLite drops it where it creates the file itself
    database.check_file(file, create=True)
    # Where folders cannot be locked or files not linked, the sets are imported as into any other.
    with suppress(ImportError, OSError), _locked(file.parent):
        if not file.exists():
            _build(file)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of such a block for the same folder; a kill lets them in."""
    from fcntl import LOCK_EX, flock  # Windows has none

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(file: Path) -> None:
    aside = file.with_name(f"{file.stem}-new{file.suffix}")
    aside.unlink(missing_ok=True)  # of a process that was killed
    location = database.as_url(str(aside))
    try:
        engine = database.connect(location, create=True, aside=True)
        with Store(location, engine) as store:
            import_published(store)
            database.keep_journal(engine)
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        # One that somebody made meanwhile stays; import_published looks after it.
        with suppress(FileExistsError):
            file.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)


def published_sets(*, sweeps: bool = False) -> dict[str, Path]:
    """Return the folders of the checkout's published sets, by name; with `sweeps` theirs, too."""
    folder = database.published_folder()
    if folder is None:
        return {}
    found = {path.parent.name: path.parent for path in sorted(folder.glob("*/workloads.csv"))}
    return {name: path for name, path in found.items() if sweeps or not name.endswith(SWEEPS)}


def import_published(store: Store, *, sweeps: bool = False) -> None:
    """Import the sets of `db/*/` whose files are not those that were imported last.

    Nothing happens where the database cannot be written: it then serves as it is.

    Raises:
        InputError: a set cannot be imported.
    """
    sets = published_sets(sweeps=sweeps)
    if not sets or (store.path is not None and database.read_only(store.path)):
        return
    with store.reading() as connection:
        query = select(schema.source.c.name, schema.source.c.fingerprint)
        seen = {row.name: row.fingerprint for row in connection.execute(query)}
    new = {
        name: found
        for name, path in sets.items()
        if seen.get(name) != (found := database.fingerprint(path))
    }
    if not new:
        return
    # They read CSV and statistics, which most commands need not.
    from opdb.store.deriving import derive_costs
    from opdb.store.exchange import import_set
    from opdb.store.set_reading import read_set

    for name, found in new.items():
        # What lies beside the code is trusted as it is: raw samples are not looked at yet.
        contents = read_set(sets[name], samples=False)
        import_set(store, sets[name], contents=contents, source=(name, found))
    for board in store.boards_of_several_sources():
        derive_costs(store, board)
