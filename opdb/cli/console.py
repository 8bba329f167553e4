"""What commands print: answers to stdout, progress and messages to stderr.

Names, notes and reasons may come from a stranger's database or file; a control character in one
could clear the screen or turn a line around, so that all is escaped, and passwords are masked.
Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from opdb import layout
from opdb.files import write_file
from opdb.layout import escaped, masked
from opdb.progress import Display, Progress
from opdb.records import Json
from opdb.tables import Report
from opdb.units import show_duration

_LINE_EVERY_S = 5.0
_USUAL_COLUMNS = 80
_LEAST_COLUMNS = 20
"""What is printed fits no terminal that is narrower."""

_answers: ContextVar[TextIO | None] = ContextVar("where answers go", default=None)


@contextmanager
def answers_alone() -> Iterator[None]:
    """Let only answers be printed to stdout: what else is, such as by a model, goes to stderr."""
    token = _answers.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answers.reset(token)


def _stdout() -> TextIO:
    return _answers.get() or sys.stdout


def print_json(document: Json) -> None:
    """Print one JSON document to stdout; a number in it that is NaN or infinite is an error."""
    print(json.dumps(document, indent=2, allow_nan=False), file=_stdout())


def show(report: Report, *, as_json: bool) -> None:
    """Print an answer to stdout: as JSON, or as text whose tables fit the terminal."""
    if as_json:
        print_json(report.to_dict())
        return
    say(*report.lines(_columns(_stdout())))


def say(*lines: str) -> None:
    """Print lines of an answer to stdout, on a terminal wrapped between their words."""
    _write(lines, _stdout())


def note(text: str, *, quiet: bool = False) -> None:
    """Print a message to stderr, on a terminal wrapped between its words; not when quiet."""
    if not quiet:
        _write(text.split("\n"), sys.stderr)
        sys.stderr.flush()


def _write(lines: Sequence[str], stream: TextIO) -> None:
    width = _columns(stream)
    for line in lines:
        shown = escaped(masked(line), keep="\t")
        print(*([shown] if width is None else layout.wrapped(shown, width)), sep="\n", file=stream)


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


def save(path: Path, content: str | bytes, *, quiet: bool) -> None:
    """Write a file that an option names, and say so."""
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


class Terminal(Display):
    """Shows messages and progress on stderr; nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def note(self, text: str) -> None:
        note(text, quiet=self._quiet)

    def progress(self, total: int, what: str) -> AbstractContextManager[Progress]:
        return progress(total, what, quiet=self._quiet)


@contextmanager
def progress(total: int, what: str, *, quiet: bool) -> Iterator[Progress]:
    """Yield the progress of a number of steps, shown on stderr; not at all when quiet."""
    if quiet:
        yield Progress()
    elif sys.stderr.isatty():
        with _bar(total, what) as bar:
            yield bar
    else:
        yield _Lines(total, what)


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
    shown = bars.Progress(*columns, console=Console(file=sys.stderr), transient=True)
    with shown:
        task = shown.add_task(what, total=total, doing="")

        class Bar(Progress):
            def doing(self, what: str) -> None:
                shown.update(task, doing=escaped(masked(what)))

            def done(self, count: int = 1) -> None:
                shown.advance(task, count)

            def note(self, text: str) -> None:
                text = escaped(masked(text), keep="\n")
                shown.console.print(text, markup=False, highlight=False)

        yield Bar()
