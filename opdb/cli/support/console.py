"""What commands print: results to stdout, progress and messages to stderr.

Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TextIO, cast

from opdb import layout
from opdb.cli.support.terminal import beneath
from opdb.layout import escaped
from opdb.records import Json
from opdb.runs.progress import Display, Progress
from opdb.tables import Report, Row, Table
from opdb.units import show_duration

_LINE_EVERY_S = 5.0
_USUAL_COLUMNS = 80
_LEAST_COLUMNS = 20
"""What is printed fits no terminal that is narrower."""

_apart: ContextVar[TextIO | None] = ContextVar("where the document goes", default=None)


@contextmanager
def document_alone() -> Iterator[None]:
    """Let nothing but `print_json` print to stdout: what else does, such as a model, to stderr."""
    told = _apart.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _apart.reset(told)


def print_json(document: Json) -> None:
    """Print one JSON document to stdout.

    Raises:
        ValueError: a number in it is NaN or infinite.
    """
    print(json.dumps(document, indent=2, allow_nan=False), file=_apart.get() or sys.stdout)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of cells to stdout, on a terminal no wider than that: see `layout.table`."""
    shown = [[escaped(str(cell)) for cell in row] for row in rows]
    for line in layout.table(header, shown, _columns(sys.stdout)):
        print(line)


def print_rows(table: Table[Row], rows: Sequence[Row]) -> None:
    """Print rows to stdout as people read them, on a terminal no wider than that."""
    for line in table.lines(rows, _columns(sys.stdout)):
        print(line)


def show(report: Report, *, as_json: bool) -> None:
    """Print an answer to stdout: as JSON, or as text whose tables fit the terminal."""
    if as_json:
        print_json(report.to_dict())
        return
    for line in report.lines(_columns(sys.stdout)):
        print(line)


def _columns(stream: TextIO) -> int | None:
    """Return how wide a stream's terminal is, COLUMNS where that is set; None of another stream."""
    if not stream.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return max(int(wanted), _LEAST_COLUMNS)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except OSError:  # a terminal that does not say
        columns = _USUAL_COLUMNS
    return max(columns, _LEAST_COLUMNS)


@contextmanager
def fitted() -> Iterator[None]:
    """Wrap what is printed to stdout between its words, where that is a terminal."""
    width = _columns(sys.stdout)
    if width is None:
        yield
        return
    stream = _Fitted(sys.stdout, width)
    with redirect_stdout(cast("TextIO", stream)):
        try:
            yield
        finally:
            stream.flush()


class _Fitted(io.TextIOBase):
    """A terminal whose lines are wrapped, but for those that are written over."""

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream, self._width = stream, width
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._stream.write("\n".join(self._lines(line)) + "\n")
        return len(text)

    def _lines(self, line: str) -> list[str]:
        return [line] if "\r" in line else layout.wrapped(escaped(line, keep="\t"), self._width)

    def flush(self) -> None:
        begun, self._begun = self._begun, ""
        self._stream.write(begun)
        self._stream.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


@contextmanager
def progress(total: int, what: str, *, quiet: bool) -> Iterator[Progress]:
    """Yield the progress of a number of steps, shown on stderr; not at all when quiet.

    Whatever else is printed meanwhile goes to stderr too: models print, and stdout is for results.
    """
    with redirect_stdout(sys.stderr):
        if quiet:
            yield Progress()
        elif sys.stderr.isatty():
            with _bar(total, what) as bar:
                yield bar
        else:
            yield _Lines(total, what)


class Terminal(Display):
    """Shows messages and progress on stderr; nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def note(self, text: str) -> None:
        """Show a message."""
        note(text, quiet=self._quiet)

    def progress(self, total: int, what: str) -> AbstractContextManager[Progress]:
        """Show the progress of a number of steps."""
        return progress(total, what, quiet=self._quiet)


def note(text: str, *, quiet: bool = False) -> None:
    """Print a message to stderr, on a terminal wrapped between its words; not when quiet."""
    if not quiet:
        width = _columns(sys.stderr)
        lines = text.split("\n")
        told = (
            lines
            if width is None
            else [n for line in lines for n in layout.wrapped(escaped(line), width)]
        )
        print(*told, sep="\n", file=sys.stderr, flush=True)


class _Lines(Progress):
    """A line when something has happened, and not more often than every few seconds."""

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self._done = 0
        self._doing = ""
        self._started_s = self._said_s = time.monotonic()

    def doing(self, what: str) -> None:
        self._doing = what

    def done(self, count: int = 1) -> None:
        self._done += count
        now_s = time.monotonic()
        if self._done < self._total and now_s - self._said_s < _LINE_EVERY_S:
            return
        self._said_s = now_s
        spent_s = now_s - self._started_s
        left_s = spent_s * (self._total - self._done) / self._done
        left = f", {show_duration(left_s)} left" if self._done < self._total else ""
        note(f"{self._what} {self._done}/{self._total} {self._doing}{left}".rstrip())

    def note(self, text: str) -> None:
        note(text)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Progress]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[doing]}", markup=False),
    )
    console = Console(file=beneath(sys.stderr))  # the bar itself is made of control characters
    shown = bars.Progress(*columns, console=console, transient=True)
    with shown:
        task = shown.add_task(what, total=total, doing="")

        class Bar(Progress):
            def doing(self, what: str) -> None:
                shown.update(task, doing=escaped(what))

            def done(self, count: int = 1) -> None:
                shown.advance(task, count)

            def note(self, text: str) -> None:
                shown.console.print(escaped(text, keep="\n"), markup=False, highlight=False)

        yield Bar()
