"""Open a database; the default one takes in the published sets of the checkout or the wheel."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sqlalchemy import select

from opdb.errors import DatabaseError, NoDatabaseError
from opdb.garbage import gc_paused
from opdb.records import SLUG_ALLOWED, is_slug
from opdb.store import database, schema
from opdb.store.published import fingerprint, set_files, sets_at_hand, sets_of, usual_sets
from opdb.store.store import Store


def open_store(url: str | None = None, *, create: bool = True, sweeps: bool = False) -> Store:
    """Open a database: the one named, else `OPDB_DB`'s, else the default one.

    A new database is created. The default one, and no other, takes in every usual published set (of
    the checkout's `db/*/`, or those that a wheel carries) that it has not seen as it now is; where
    there is none yet, it is built of them aside and put in place when it is whole. Sets of sweeps
    are taken in with `sweeps` alone, those of another device once it is asked for (`take_in`): a
    usual prediction needs nothing of them, and need not wait for them.

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
        try:
            engine = database.connect(location, create=create or not named)
        except NoDatabaseError as error:
            raise NoDatabaseError(f"{error}; {how_to_fill(location)}") from error
        store = undo.enter_context(Store(location, engine))
        _check_slugs(store)
        if not named:
            import_published(store, sweeps=sweeps)
        undo.pop_all()
    return store


def check_openable(url: str | None = None) -> None:
    """Check that a database can be opened, or made, before work that takes long; make nothing.

    Raises:
        DatabaseError: it cannot.
    """
    named = url or os.environ.get("OPDB_DB")
    location = database.as_url(named) if named else database.default_url()
    file = database.file_of(location)
    if file is None or file.exists():
        database.connect(location, create=False).dispose()
        return
    if (found := database.obstacle(file)) is not None:
        raise DatabaseError(f"database {file}: {found}; give a file")
    above = next(folder for folder in file.absolute().parents if folder.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise DatabaseError(f"database {file}: it cannot be made: no permission in {above}")


def how_to_fill(location: str, device: str | None = None) -> str:
    """Say which command brings published sets, the usual or a device's, into a database (a URL)."""
    found, here = usual_sets() if device is None else sets_of(device), Path.cwd()
    if not found:
        return "to bring in measurements: opdb import FOLDER, a published set of a clone's db/"
    named = [] if location == database.default_url() else ["--db", database.shown(location)]
    size = sum(file.stat().st_size for path in found.values() for file in set_files(path))
    sets = [
        str(path.relative_to(here) if path.is_relative_to(here) else path)
        for path in found.values()
    ]
    # An import reads 1 MB/s on two cores.
    return (
        f"to bring in the published measurements ({size / 1e6:.0f} MB, some {1 + size / 1e6:.0f} "
        f"s): {shlex.join(['opdb', 'import', *sets, *named])}"
    )


def _check_slugs(store: Store) -> None:
    """Check that no device of a database has a forbidden name: it may come from a stranger.

    Raises:
        DatabaseError: one is.
    """
    for device in store.devices():
        if not is_slug(device.slug):
            raise DatabaseError(
                f"database {store.location}: device {device.slug!r} is named as no device may be "
                f"({SLUG_ALLOWED}); somebody altered it, or it is not one of opdb's"
            )


def build_published(location: str) -> None:
    """Build the default database (a URL) of the published sets, where there is none yet.

    Written aside it needs no journal, and a process that is killed leaves no half of one. Of
    several that want it at once, one builds it and the others wait.

    Raises:
        DatabaseError: it cannot be written.
        InputError: a set cannot be imported.
    """
    file = database.file_of(location)
    if file is None or file.exists() or not sets_at_hand():
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


@gc_paused()
def _build(file: Path) -> None:
    aside = file.with_name(f"{file.stem}-new{file.suffix}")
    aside.unlink(missing_ok=True)  # of a process that was killed
    location = database.as_url(str(aside))
    try:
        with ExitStack() as undo:
            engine = database.connect(location, create=True, aside=True)
            undo.callback(engine.dispose)
            with database.indices_last(engine):
                import_published(Store(location, engine))
            database.keep_journal(engine)
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        # One that somebody made meanwhile stays; import_published looks after it.
        with suppress(FileExistsError):
            file.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)


def is_default(store: Store) -> bool:
    """Whether a database is the default one, which alone takes in published sets.

    One that `OPDB_DB` names is somebody's own.
    """
    return not os.environ.get("OPDB_DB") and store.url == database.default_url()


def take_in(store: Store, device: str) -> None:
    """Take the published sets of a device (slug) into the default database, and into no other.

    Raises:
        InputError: a set cannot be imported.
    """
    if is_default(store) and sets_of(device):
        import_published(store, device=device)


def import_published(store: Store, *, sweeps: bool = False, device: str | None = None) -> None:
    """Import the published sets whose files are not those that were imported last.

    These are the usual ones, with a `device` (slug) its own as well, and all that were imported
    once. Nothing happens where the database cannot be written: it then serves as it is.

    Raises:
        InputError: a set cannot be imported.
    """
    sets = sets_at_hand()
    if not sets or (store.path is not None and database.read_only(store.path)):
        return
    with store.reading() as connection:
        query = select(schema.source.c.name, schema.source.c.fingerprint)
        seen = {row.name: row.fingerprint for row in connection.execute(query)}
    wanted = usual_sets(sweeps=sweeps).keys() | seen.keys()
    if device is not None:
        wanted |= sets_of(device).keys()
    new = {
        name: found
        for name, path in sets.items()
        if name in wanted and seen.get(name) != (found := fingerprint(path))
    }
    if not new:
        return
    # They read archives and statistics, which most commands need not.
    from opdb.store.deriving import derive_pooled
    from opdb.store.exchange import import_set
    from opdb.store.sets import read_set

    for name, found in new.items():
        # Sets beside the code are trusted as they are; `make check` proves their costs.
        contents = read_set(sets[name], trusted=True)
        import_set(store, sets[name], contents=contents, source=(name, found))
    derive_pooled(store, store.boards_of_several_sources())
