"""The seal of a database file: a checksum of all its bytes, by which a damaged one is noticed.

SQLite checks the structure of the pages that it reads, never the values in them: a flipped bit of
a count is another count. A seal lies behind the last page, where SQLite reads nothing, and goes
where the file goes. Whoever writes the file through SQLite cuts the seal off, or makes a page of
it, as the journal is written back: one that ends the file is that of the content. A database at
work, whose journal holds something, is not checked; the last to leave seals it.

A server keeps checksums of its own (PostgreSQL: `data_checksums`).
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
import zlib
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path
from weakref import WeakSet

LARGEST_BYTES = 512 * 1024 * 1024
"""A larger file is not sealed: reading all of it would take longer than most answers."""

_FORM, _CHECKSUM = struct.Struct("<8sQ4sI"), struct.Struct("<I")
_MAGIC = b"opdbseal"
_BYTES = _FORM.size + _CHECKSUM.size
"""Of a seal: magic, bytes of content, SQLite's count of changes, their checksum; its own."""

_HEADER_BYTES = 100
_CHUNK_BYTES = 1024 * 1024


class Hold:
    """A database file that this process has open through SQLite, until it is released.

    Meanwhile the process must open it in no other way: closing a file drops the locks that the
    process has on it, those of SQLite as well.
    """

    def __init__(self, file: Path) -> None:
        """Check a file, if it is there and not held, and hold it.

        Raises:
            BrokenSealError: it is sealed, and not as it was then.
            OSError: it cannot be read.
        """
        self.file = file.resolve()
        with _LOCK:
            if not held(file) and file.exists() and broken(file):
                raise BrokenSealError
            _HOLDS.add(self)

    def release(self) -> None:
        """Say that its connections are closed."""
        _HOLDS.discard(self)


class BrokenSealError(Exception):
    """The bytes of a file are not those that were sealed."""


_HOLDS: WeakSet[Hold] = WeakSet()
_LOCK = threading.Lock()


def held(file: Path) -> bool:
    """Whether this process has a file open through SQLite."""
    return any(hold.file == file.resolve() for hold in list(_HOLDS))


def seal(file: Path) -> None:
    """Seal a file that opdb has closed, unless it is sealed, or at work, or cannot be written."""
    with _LOCK, suppress(OSError, sqlite3.Error):
        if held(file) or _at_work(file) or not os.access(file, os.W_OK):
            return
        with file.open("r+b", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            header, sealed = stream.read(_HEADER_BYTES), _read(_last(stream, size))
            if 0 < size <= LARGEST_BYTES and (sealed is None or _is_stale(sealed[1], header)):
                _seal_frozen(file, stream)


def _seal_frozen(file: Path, stream: FileIO) -> None:
    uri = file.resolve().as_uri() + "?mode=rw"
    options = {"timeout": 0.0, "isolation_level": None, "uri": True}
    with closing(sqlite3.connect(uri, **options)) as connection:  # type: ignore[call-overload]
        # From here on nobody writes rows and, the journal being empty, nobody the file.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not _at_work(file):
            _write(stream)


def broken(file: Path) -> bool:
    """Whether a file, which this process does not hold, is sealed and not as it was then.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        if _at_work(file) or not 0 < size <= LARGEST_BYTES + _BYTES:
            return False
        header, last = stream.read(_HEADER_BYTES), _last(stream, size)
        sealed = _read(last)
        if sealed is None:
            return size == _content_bytes(header) + _BYTES and any(last) and not _at_work(file)
        content, changes, checksum = sealed
        stream.seek(0)
        if _is_stale(changes, header) or _checksum(stream, content) == checksum:
            return False
        # Unless somebody wrote to it meanwhile, which would have cut the seal off.
        return _last(stream, os.fstat(stream.fileno()).st_size) == last and not _at_work(file)


def _is_stale(changes: bytes, header: bytes) -> bool:
    """Whether a file was written since by a program that switched its journal to another sort.

    SQLite counts the changes in two places of the header.
    """
    return changes != header[24:28] == header[92:96]


def _write(stream: FileIO) -> None:
    stream.seek(0)
    header = stream.read(_HEADER_BYTES)
    content = _content_bytes(header)
    stream.seek(content)
    if not _is_spare(stream.read(LARGEST_BYTES)):
        return
    stream.seek(0)
    said = _FORM.pack(_MAGIC, content, header[24:28], _checksum(stream, content))
    stream.seek(content)
    stream.write(said + _CHECKSUM.pack(zlib.crc32(said)))
    stream.truncate(content + _BYTES)  # a power cut may leave zeros of it: no seal


def _is_spare(behind: bytes) -> bool:
    """Whether what lies behind the last page is nothing, or part of a seal, or one and zeros.

    SQLite takes an earlier seal for the beginning of a page, and fills that up.
    """
    return len(behind) <= _BYTES or (
        _read(behind[:_BYTES]) is not None and not any(behind[_BYTES:])
    )


def _content_bytes(header: bytes) -> int:
    """Return the bytes of all pages, by the file's header."""
    page = int.from_bytes(header[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def _at_work(file: Path) -> bool:
    """Whether the journal of a file holds anything."""
    try:
        return file.with_name(file.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _last(stream: FileIO, size: int) -> bytes:
    stream.seek(max(0, size - _BYTES))
    return stream.read(_BYTES)


def _read(last: bytes) -> tuple[int, bytes, int] | None:
    """Return what a seal says: bytes, count of changes, checksum; None where it is none."""
    said, own = last[: _FORM.size], last[_FORM.size :]
    if len(last) != _BYTES or own != _CHECKSUM.pack(zlib.crc32(said)):
        return None
    magic, content, changes, checksum = _FORM.unpack(said)
    return (content, changes, checksum) if magic == _MAGIC else None


def _checksum(stream: FileIO, size: int) -> int:
    """Return the CRC-32 of the next bytes of a stream; less where it ends before."""
    found, buffer = 0, memoryview(bytearray(min(size, _CHUNK_BYTES)))
    while size > 0 and (count := stream.readinto(buffer[:size])):
        found, size = zlib.crc32(buffer[:count], found), size - count
    return found
