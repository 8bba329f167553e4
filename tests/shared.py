"""A folder that all processes of one test run share, for what is slow to make."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "OPDB_TESTS_SHARED"
"""Names the folder to the processes that this one starts."""

MEMORY, ROOM_BYTES = Path("/dev/shm"), 6 << 30
"""Where Linux keeps files in memory, and what must be free: a PostgreSQL takes a gigabyte or two,
what all processes share and what a test writes half of one."""

_made: dict[Path, int] = {}
"""When each file that this process asked for was last written, in nanoseconds."""


def in_memory() -> Path | None:
    """Return a folder in memory, where a database is made and removed in a third of the time."""
    room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    return MEMORY if room else None


def temporary_in_memory() -> None:
    """Let this process, and those that it starts, keep temporary files in memory.

    SQLite waits for a disk with each commit: to make a database took 53 ms, where 9 are enough.
    """
    memory = in_memory()
    if "TMPDIR" not in os.environ and memory is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


def folder() -> Path:
    """Return the folder; the first process to ask makes it, and removes it as it ends."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = made = tempfile.mkdtemp(prefix="opdb-tests-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ[VARIABLE])


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file of the folder; the first process to ask makes it, the others wait for it."""
    path = folder() / name
    with (folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_name(f"part-{name}")
            make(part)
            part.rename(path)
    _made.setdefault(path, path.stat().st_mtime_ns)
    return path


def written() -> list[str]:
    """Return the names of made files that were written since this was last asked."""
    now = {path: path.stat().st_mtime_ns for path in _made}
    found = [path.name for path, time in now.items() if time != _made[path]]
    _made.update(now)
    return found
