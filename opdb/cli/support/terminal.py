"""What a terminal would obey is shown instead, and no password: where all output goes through.

Names, notes and reasons may come from a stranger's database, set or summary file; a control
character in one of them could clear the screen, colour a lie, or turn a line around.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from opdb.layout import escaped
from opdb.secrets import masked


class _Escaping:
    """A text stream that escapes and masks what is written to it; line breaks and tabs stay.

    So does a carriage return that begins a write: progress bars of libraries begin so.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"a text stream was given {type(text).__name__}")
        start = 1 if text.startswith("\r") else 0
        self.beneath.write(text[:start] + escaped(masked(text[start:]), keep="\n\t"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


def beneath(stream: TextIO) -> TextIO:
    """Return the stream that one escapes for; itself where it escapes nothing.

    For what draws on a terminal, and is given escaped texts alone.
    """
    return stream.beneath if isinstance(stream, _Escaping) else stream


@contextmanager
def escaping() -> Iterator[None]:
    """Escape all that is printed inside, to stdout and stderr."""
    out, err = (cast(TextIO, _Escaping(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
