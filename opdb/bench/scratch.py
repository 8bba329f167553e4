"""Temporary folders, which go with what they were made for, even where that is killed."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opdb.errors import CannotMeasureError

_MADE, _LOCKED = "opdb-", "opdb-on-"
"""How the names of folders begin: of one just made, and of one that its process has locked."""


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a new empty folder, removed in the end; remove those that killed processes left.

    A folder is locked for as long as its process lives, and named after the host, whose locks alone
    are sure to be seen here. One of another host or user is left alone.

    Raises:
        CannotMeasureError: none can be made.
    """
    try:
        _remove_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=_MADE))
    except OSError as error:
        raise CannotMeasureError(
            f"there is no folder for temporary files: {error.strerror}; free some space, or name "
            "another in TMPDIR"
        ) from error
    lock = _lock(folder)
    if lock is not None:  # named so from now on: it may be looked for
        random = folder.name.removeprefix(_MADE)
        folder = folder.rename(folder.with_name(f"{_LOCKED}{host()}-{random}"))
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def host() -> str:
    """Return this host's name."""
    return os.uname().nodename


def _remove_abandoned() -> None:
    beginning = glob.escape(f"{_LOCKED}{host()}-")
    for folder in Path(tempfile.gettempdir()).glob(f"{beginning}*"):
        lock = _lock(folder)
        if lock is not None:
            if os.fstat(lock).st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the descriptor is closed; None where it is locked, or cannot be."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
