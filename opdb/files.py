"""Files: read within bounds; checked before the work, written whole after it, or appended to."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opdb.errors import InputError

SMALL_BYTES = 128 * 2**10
LARGEST_BYTES = 2**30
"""The most that a file may have: one written by hand, and one that a program wrote."""


_NEW_FILE = 0o644


def check_input(path: Path, what: str, most_bytes: int) -> None:
    """Check that a path names a regular file of at most so many bytes, before it is opened.

    A device or a pipe may never end, or never begin. `what` says in messages what is wanted.

    Raises:
        InputError: it is none, or larger.
        OSError: nothing is there, or nothing that may be looked at.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{path} is a folder; give {what}")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is a device or a pipe; give {what} that is a regular file")
    if found.st_size > most_bytes:
        raise InputError(f"{path}: {found.st_size} bytes; {what} has at most {most_bytes}")


def read_bytes(path: Path, what: str, most_bytes: int = SMALL_BYTES) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    try:
        check_input(path, what, most_bytes)
        with path.open("rb") as stream:
            return stream.read(most_bytes)  # no more, whatever it says of its size
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def read_text(path: Path, what: str, most_bytes: int = SMALL_BYTES) -> str:
    """Return the text of a regular file of at most so many bytes."""
    try:
        return read_bytes(path, what, most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def parse_json(path: Path, text: str, **options: Any) -> Any:
    """Return what a JSON text holds; `options` are those of json.loads."""
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        hint = "; is it cut off?" if error.pos >= len(text.rstrip()) else ""
        raise InputError(f"{path}, {where}: not valid JSON: {error.msg}{hint}") from error
    except (RecursionError, ValueError) as error:  # the latter: of a number of 5,000 digits
        said = "nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(f"{path}: not valid JSON: {said}") from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file aside and rename it into place, under the permissions that it had.

    A device or pipe is written to as it stands.
    """
    target = path.resolve()
    try:
        if is_special(path):
            path.write_bytes(content)
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE
        number, aside = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(content)
            Path(aside).chmod(mode)
            Path(aside).replace(target)
        finally:
            Path(aside).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def file_name(text: str) -> str:
    """Return a text as the name of a file: letters, digits, `-`, `.`, `_`, and no leading dot.

    Names of models may come from a stranger's database; none may lead out of the folder.
    """
    return re.sub(r"[^\w.-]", "_", text).lstrip(".")


def is_special(path: Path) -> bool:
    """Whether a path names something that no file may replace: /dev/null, /dev/stdout, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(*paths: Path | None) -> None:
    """Check, before work whose results files are to hold, that each can be written."""
    targets: set[Path] = set()
    for path in filter(None, paths):
        target = path.resolve()
        if str(path) == "-":
            raise InputError("-: is no file here; name one, or /dev/stdout")
        if path.is_dir():
            raise InputError(f"{path}: cannot be written: it is a folder")
        if is_special(path):
            continue
        if not target.parent.is_dir():
            raise InputError(f"{path}: cannot be written: there is no folder {path.parent}")
        # The file is made beside the old one and takes its place.
        places = [target.parent, *([path] if path.exists() else [])]
        if not all(os.access(each, os.W_OK) for each in places):
            raise InputError(f"{path}: cannot be written: no permission")
        if target in targets:
            raise InputError(f"{path}: named for two results; give each a file of its own")
        targets.add(target)


def make_folder(path: Path) -> None:
    """Make a folder where there is none, and check that files can be written in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: nothing can be written in it: no permission")


class AppendedCsv:
    """A CSV file that rows are appended to; it gets its header with the first."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Look at the file before anything is measured; a device or pipe has nothing to look at."""
        check_writable(path)
        text = read_text(path, "a CSV file", LARGEST_BYTES) if path.is_file() else ""
        if text and text.splitlines()[0] != ",".join(columns):
            raise InputError(f"{path}: has other columns; give another file for --csv")
        self._path, self._columns, self._has_header = path, columns, bool(text)
        self._lacking = "\n" if text and not text.endswith("\n") else ""

    def append(self, row: Mapping[str, object]) -> None:
        """Append one row."""
        try:
            with self._path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._lacking)
                writer = csv.DictWriter(file, self._columns, lineterminator="\n")
                if not self._has_header:
                    writer.writeheader()
                writer.writerow(row)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._has_header, self._lacking = True, ""
