"""The program `opdb`: how commands are found and run, and what they print.

Answers go to stdout, progress and messages to stderr.

Names, notes and reasons may come from a stranger's database or file; a control character in one
could clear the screen or turn a line around, so that all is escaped, and passwords are masked.
Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from errno import EBADF, ENOSPC
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import takewhile
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, TextIO, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from opdb.errors import InputError, OpdbError, UnknownNameError, unforeseen
from opdb.files import write_file
from opdb.progress import Display, Progress
from opdb.records import Json
from opdb.tables import Report, escaped, masked
from opdb.units import show_duration

_LINE_EVERY_S = 5.0

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
    """Print an answer to stdout: as JSON, or as text."""
    if as_json:
        print_json(report.to_dict())
        return
    say(*report.lines())


def say(*lines: str) -> None:
    _write(lines, _stdout())


def note(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        _write(text.split("\n"), sys.stderr)
        sys.stderr.flush()


def _write(lines: Sequence[str], stream: TextIO) -> None:
    for line in lines:
        print(escaped(masked(line), keep="\t"), file=stream)


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


# Finds the commands, runs one, and turns what ends it into one message and an exit status.

PANELS = ("predict", "measure", "data", "studies")
"""The panels of `opdb --help`, in which a command stands by its module's PANEL."""

TORCH = ("torch", "torchvision")
"""Packages that predictions of stored workloads do without; other commands need them."""

INTERRUPTED = "interrupted; what was finished is stored"
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_PRINTING = ("opdb.cli.", "typer.")
"""How the names of the modules begin that print, or write what was printed."""


def _found() -> dict[str, str]:
    """Return the module of each command by its name; no command is imported."""
    modules = [f"opdb.studies.{name}" for name in import_module("opdb.studies").COMMANDS]
    names = (each.name for each in iter_modules(import_module("opdb.commands").__path__))
    modules += [f"opdb.commands.{name}" for name in names if not name.startswith("_")]
    return {module.rpartition(".")[2].removesuffix("_"): module for module in modules}


COMMANDS = _found()
"""Every command and its module, by name."""

_stopped = threading.Event()
"""Set by Ctrl-C or a request to end."""


class StoppedError(OpdbError):
    """The user pressed Ctrl-C; what was finished is stored."""

    exit_status = _INTERRUPTED


class Command(TyperCommand):
    """A command to which an option of one value is given once."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        """Read the arguments; an option of one value that is given twice is an error."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for one in () if ctx.resilient_parsing else given:  # a shell completes what is half typed
            times = given.count(one)
            takes_one = isinstance(one, TyperOption) and not (one.multiple or one.is_flag)
            if times > 1 and takes_one:
                raise InputError(f"{one.opts[0]} is given {times} times; give it once")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; nothing but its answer is printed to stdout."""
        with answers_alone():
            return super().invoke(ctx)


def command_named(name: str) -> Any:
    return command_of(name, import_module(COMMANDS[name]).run)


def command_of(name: str, run: Callable[..., None]) -> Any:
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name, cls=Command)(taken_apart(run))
    return typer.main.get_command(one)


def taken_apart(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are records of options are single options.

    A record is a dataclass whose fields are annotated as a command's parameters are. Where it is
    annotated with `Without`, the fields named there are no options and keep their defaults.
    """
    hints = get_type_hints(run, include_extras=True)
    records: dict[str, tuple[Any, list[str]]] = {}
    parameters = []
    for each in signature(run).parameters.values():
        hint = hints[each.name]
        record, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        make = record
        for extra in extras:  # which may say of what other record the options are, made how
            record, make = getattr(extra, "record", record), getattr(extra, "make", make)
        if not is_dataclass(record):
            parameters.append(_parameter(each.name, each.default, hint))
            continue
        left_out = {name for extra in extras for name in extra.names}
        chosen = [one for one in fields(record) if one.name not in left_out]
        records[each.name] = make, [one.name for one in chosen]
        types = get_type_hints(record, include_extras=True)
        parameters += [_parameter(one.name, one.default, types[one.name]) for one in chosen]

    def called(**given: Any) -> None:
        for name, (make, chosen) in records.items():
            given[name] = make(**{one: given.pop(one) for one in chosen})
        run(**given)

    called.__doc__ = run.__doc__
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parameter(name: str, default: Any, hint: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


class Commands(TyperGroup):
    """The commands, each module imported when its command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command's module and return its command; None for an unknown name."""
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a panel of commands after the other, each with the first sentence of its help."""
        widest = max(map(len, COMMANDS))
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        for name in self.list_commands(ctx):
            panel = getattr(import_module(COMMANDS[name]), "PANEL", PANELS[-1])
            said = self.get_command(ctx, name).get_short_help_str(limit=1000)
            panels[panel].append((name.ljust(widest), said))
        for panel, rows in panels.items():
            with formatter.section(panel.capitalize()):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments start with; an unknown name is an error."""
        unknown = args and not args[0].startswith("-") and args[0] not in COMMANDS
        if unknown and not ctx.resilient_parsing:
            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def make_context(self, *given: Any, **named: Any) -> Any:
        """Read the options before the command; Ctrl-C becomes an error like any other."""
        try:
            return super().make_context(*given, **named)
        except KeyboardInterrupt as error:
            raise StoppedError("interrupted; nothing was begun") from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C becomes an error like any other, a closed pipe a quiet end."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # the reader (head, a pager) has what it wanted
            _discard(sys.stdout)
            raise typer.Exit(_BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise StoppedError(str(error) or INTERRUPTED) from error


app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        from opdb import __version__

        typer.echo(f"opdb {__version__}")
        raise typer.Exit


@app.callback()
def opdb(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Measure what PyTorch operators cost in time and energy, and predict whole models from it."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    name: str = "opdb",
    run: Callable[..., None] | None = None,
) -> int:
    """Run the command line, or one function as a command of its own, and return the exit status.

    0 done; 1 the check that was asked for does not hold; 2 bad input or usage; 3 it cannot be
    measured here; 130 interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = list(takewhile("--".__ne__, given))  # what follows is of a job that `submit` submits
    quiet = not {"--quiet", "-q"}.isdisjoint(own)
    _stopped.clear()
    command = app if run is None else command_of(name, run)
    given = given or ([] if run else ["--help"])
    try:
        with _interruptible(), _unwarned() if quiet else nullcontext():
            left = command(args=given, prog_name=name, standalone_mode=False)
        status = left if isinstance(left, int) else 0
    except SystemExit as stop:  # a shell's completion
        status = stop.code if isinstance(stop.code, int) else 0
    except Exception as error:  # noqa: BLE001 - no traceback, whoever's code it was
        status = _told(error, own)
    lost = _flush(sys.stdout)
    if isinstance(lost, BrokenPipeError):
        status = _BROKEN_PIPE
    elif lost is not None and status == 0:
        status = _told(lost, own)
    _flush(sys.stderr)
    return status


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM, and SIGINT where it is not ignored, interrupt the command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
        _stopped.set()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGTERM, interrupt)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _unwarned() -> Iterator[None]:
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        if not os.environ.get("TORCH_LOGS"):
            logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)


def _told(error: Exception, arguments: Sequence[str]) -> int:
    status, said = OpdbError.exit_status, str(error)
    if _stopped.is_set() and not isinstance(error, StoppedError):
        # A library that Ctrl-C found in the middle of something made an error of its own of it.
        status, said = _INTERRUPTED, _interrupted(error)
    elif isinstance(error, OpdbError):
        status = error.exit_status
    elif hasattr(error, "format_message"):  # of typer: a missing argument, an unknown option
        context = error.ctx  # type: ignore[attr-defined]
        usage = f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n"
        said = f"{usage if context else ''}Error: {error.format_message()}"
        note(said)
        return status
    elif isinstance(error, OSError):
        [*_, (frame, _)] = traceback.walk_tb(error.__traceback__)
        reason = {EBADF: "it is closed", ENOSPC: error.strerror}.get(error.errno or 0)
        if reason and frame.f_globals["__name__"].startswith(_PRINTING):
            said = f"nothing can be printed to stdout: {reason}"
    elif isinstance(error, UnicodeEncodeError):  # of bytes that a shell took for a name
        said = f"{error.object!r} is no text in {error.encoding}; give a name that is"
    elif isinstance(error, ModuleNotFoundError) and error.name in TORCH:
        from opdb.models import missing_library

        said = str(missing_library(error, "for this"))
    else:
        said = unforeseen(error)
    if "--debug" in arguments:
        traceback.print_exception(error)
    with suppress(OSError):  # where stderr is full the status alone tells
        note(f"opdb: {said}")
    return status


def _interrupted(error: BaseException | None) -> str:
    """Say what Ctrl-C left, by the interrupt that an error of tidying up came after."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and str(error):
            return str(error)
        error = error.__context__
    return INTERRUPTED


def _flush(stream: TextIO) -> OSError | None:
    """Write what was printed; what cannot be is dropped, or the interpreter's last flush fails."""
    try:
        stream.flush()
    except OSError as error:
        _discard(stream)
        return error
    return None


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
