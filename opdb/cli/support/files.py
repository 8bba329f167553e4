"""Files that options name: saved with a message, and the command that makes them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from opdb.cli.support.console import note
from opdb.files import write_file


def save(path: Path, content: str | bytes, *, quiet: bool) -> None:
    """Write a file that an option names, and say so.

    Raises:
        InputError: it cannot be written.
    """
    write_file(path, content.encode() if isinstance(content, str) else content)
    note(f"written: {path}", quiet=quiet)


def typed_command() -> str:
    """Return the command line as it was typed, without where the files and the database are."""
    files = {"--db", "--png", "--svg", "--html", "--csv", "--ncu-csv", "--ncu-report"}
    kept, arguments = [], iter(sys.argv[1:])
    for argument in arguments:
        if argument in files:
            next(arguments, None)
        elif argument.split("=")[0] not in {*files, "--json", "--quiet", "-q", "--debug"}:
            kept.append(argument)
    return shlex.join(["opdb", *kept])
