"""What commands print: results to stdout, progress and messages to stderr.

Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Protocol, TextIO

from opdb.errors import OpdbError
from opdb.records import Json
from opdb.units import show_duration

_LINE_EVERY_S = 5.0

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
    """Print a table to stdout: the first column to the left, numbers to the right."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    left = [
        column == 0 or not all(_is_number(row[column]) for row in rows)
        for column in range(len(header))
    ]
    for line in lines:
        cells = [
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _is_number(cell: object) -> bool:
    return str(cell)[:1].isdigit() or str(cell)[:1] in ("-", "–")


def raise_all(errors: Sequence[OpdbError], done: str) -> None:
    """Raise what went wrong with some models, in one message; `done` says what the others are.

    Raises:
        OpdbError: something did: one error as it is, several as one that names them all.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "\n".join(f"  {error}" for error in dict.fromkeys(map(str, errors)))
        raise OpdbError(f"{len(errors)} models failed; what was finished is {done}\n{lines}")


class Progress(Protocol):
    """What is told while a command works."""

    def doing(self, what: str) -> None:
        """Say what runs now."""

    def done(self, count: int = 1) -> None:
        """Say that one step, or more, is over."""

    def note(self, text: str) -> None:
        """Say something that stays, a line of its own."""


@contextmanager
def progress(total: int, what: str, *, quiet: bool) -> Iterator[Progress]:
    """Yield the progress of a number of steps, shown on stderr; not at all when quiet.

    Whatever else is printed meanwhile goes to stderr too: models print, and stdout is for results.
    """
    with redirect_stdout(sys.stderr):
        if quiet:
            yield _Silent()
        elif sys.stderr.isatty():
            with _bar(total, what) as bar:
                yield bar
        else:
            yield _Lines(total, what)


def note(text: str, *, quiet: bool = False) -> None:
    """Print a message to stderr; not when quiet."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


class _Silent:
    def doing(self, what: str) -> None:
        pass

    def done(self, count: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class _Lines:
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
    shown = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    with shown:
        task = shown.add_task(what, total=total, doing="")

        class Bar:
            def doing(self, what: str) -> None:
                shown.update(task, doing=what)

            def done(self, count: int = 1) -> None:
                shown.advance(task, count)

            def note(self, text: str) -> None:
                shown.console.print(text, markup=False, highlight=False)

        yield Bar()
