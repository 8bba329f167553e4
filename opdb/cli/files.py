"""Files that commands write: checked before the work, written whole after it."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from opdb.errors import InputError
from opdb.records import Json


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


def csv_text(fields: Sequence[str], rows: Iterable[Mapping[str, Json]]) -> str:
    """Return rows as CSV; a missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
