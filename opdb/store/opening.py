"""Open a database; the default one takes in the checkout's published sets when they change."""

from __future__ import annotations

import os
from contextlib import ExitStack

from sqlalchemy import select

from opdb.store import database, schema
from opdb.store.store import Store


def open_store(url: str | None = None, *, create: bool = True) -> Store:
    """Open a database: the one named, else `OPDB_DB`'s, else the default one.

    A new database is created. The default one, and no other, takes in every published set of the
    checkout's `db/*/` that it has not seen as it now is.

    Raises:
        DatabaseError: it cannot be used; or it was named, there is none, and `create` is false.
        InputError: a published set cannot be imported.
    """
    named = url or os.environ.get("OPDB_DB")
    location = database.as_url(named) if named else database.default_url()
    with ExitStack() as undo:
        store = undo.enter_context(
            Store(location, database.connect(location, create=create or not named))
        )
        if not named:
            import_published(store)
        undo.pop_all()
    return store


def import_published(store: Store) -> None:
    """Import every set of `db/*/` whose files are not those that were imported last.

    Nothing happens where the database cannot be written: it then serves as it is.

    Raises:
        InputError: a set cannot be imported.
    """
    folder = database.published_folder()
    if folder is None or (store.path is not None and database.read_only(store.path)):
        return
    sets = {path.parent.name: path.parent for path in sorted(folder.glob("*/workloads.csv"))}
    if not sets:
        return
    with store.reading() as connection:
        query = select(schema.source.c.name, schema.source.c.fingerprint)
        seen = {row.name: row.fingerprint for row in connection.execute(query)}
    for name, path in sets.items():
        found = database.fingerprint(path)
        if seen.get(name) != found:
            # They read CSV, which most commands need not.
            from opdb.store.exchange import import_set
            from opdb.store.set_reading import read_set

            # What lies beside the code is trusted as it is: raw samples are not looked at yet.
            contents = read_set(path, samples=False)
            import_set(store, path, contents=contents, source=(name, found))
