"""Files that are written: checked before the work, written whole after it, or appended to."""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from opdb.errors import InputError


def write_file(path: Path, content: bytes) -> None:
    """Write a file aside and rename it into place; a device or pipe is written to as it stands.

    Raises:
        InputError: it cannot be written.
    """
    target = path.resolve()
    try:
        if is_special(path):
            path.write_bytes(content)
            return
        number, aside = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(content)
            Path(aside).chmod(0o644)
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


def check_writable(path: Path) -> None:
    """Check, before work whose result a file is to hold, that it can be written.

    Raises:
        InputError: it cannot.
    """
    folder = path.resolve().parent
    if str(path) == "-":
        raise InputError("-: is no file here; name one, or /dev/stdout")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder")
    if is_special(path):
        return
    if not folder.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: cannot be written: no permission in {path.parent}")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written: no permission")


def make_folder(path: Path) -> None:
    """Make a folder in which files are to be written, where there is none; check that they can be.

    Raises:
        InputError: it cannot be made, or nothing be written in it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: nothing can be written in it: no permission")


class AppendedCsv:
    """A CSV file that rows are appended to; it gets its header with the first."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Look at the file before anything is measured; a device or pipe has nothing to look at.

        Raises:
            InputError: it is a folder, cannot be written, or has other columns.
        """
        check_writable(path)
        self._path, self._columns = path, columns
        text = "" if is_special(path) else self._read()
        try:
            found = next(csv.reader(io.StringIO(text)), [])
        except csv.Error:
            found = [""]
        if found and found != [*columns]:
            raise InputError(f"{path}: has other columns; give another file for --csv")
        self._header, self._whole = not found, not text or text.endswith("\n")

    def _read(self) -> str:
        try:
            with self._path.open("a+", newline="", errors="replace") as file:
                file.seek(0)
                return file.read()
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error

    def append(self, row: Mapping[str, object]) -> None:
        """Append one row.

        Raises:
            InputError: the file cannot be written.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        if self._header:
            writer.writeheader()
        writer.writerow(row)
        try:
            with self._path.open("a", newline="") as file:
                file.write(("" if self._whole else "\n") + text.getvalue())
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._header, self._whole = False, True
