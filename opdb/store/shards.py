"""Shards: databases that jobs wrote separately, merged into one.

A shard goes the way of a published set, device by device: every field is checked, every key
recomputed, and what is there already stays. Its costs are not read, for those of a job that was
killed are not what its visits say; they are derived anew. What an earlier import of the same shard
brought is replaced, so that one that has grown can come again, and twice is once.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from opdb.errors import InputError
from opdb.store.exchange import Imported, export_set, import_set
from opdb.store.opening import open_store
from opdb.store.store import Store


def is_shard(path: Path) -> bool:
    """Return whether a path is to be read as a database, not as the folder of a set."""
    return not path.is_dir() and (path.is_file() or path.suffix in (".sqlite", ".db"))


def check_shard(path: Path) -> None:
    """Check that a file is a database of opdb's.

    Raises:
        DatabaseError: it is not there, or is something else.
    """
    open_store(str(path), create=False).close()


def import_shard(store: Store, path: Path) -> Imported:
    """Take all measurements of a shard into a database; each device comes in whole or not at all.

    Raises:
        DatabaseError: it is not a database of opdb's.
        InputError: a row of it is not what it says it is, or it is this database itself.
    """
    if store.path is not None and store.path.resolve() == path.resolve():
        raise InputError(f"{path} is the database itself; name another with --db, or another shard")
    found: Counter[str] = Counter()
    added: Counter[str] = Counter()
    with open_store(str(path), create=False) as shard, tempfile.TemporaryDirectory() as aside:
        stat = path.stat()
        seen = f"{stat.st_size} {stat.st_mtime_ns}"
        for number, device in enumerate(shard.devices()):
            folder = Path(aside, str(number))
            export_set(shard, folder, device=device.slug, costs=False)
            source = f"{path.resolve()} {device.slug}"
            imported = import_set(store, folder, source=(source, seen))
            found.update(imported.found)
            added.update(imported.added)
    return Imported(dict(found), {name: added[name] for name in found})
