"""The program `opdb`: how commands are found and run, and what they print.

Answers go to stdout, progress and messages to stderr.

Names, notes and reasons may come from a stranger's database or file; a control character in one
could clear the screen or turn a line around, so that all is escaped, and passwords are masked.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import takewhile
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, TextIO, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from opdb.errors import OpdbError, unforeseen
from opdb.files import write_file
from opdb.packaging import install
from opdb.processes import stop
from opdb.progress import Display
from opdb.records import Json
from opdb.tables import Report, escaped, masked

_answers: ContextVar[TextIO | None] = ContextVar("where answers go", default=None)


def _stdout() -> TextIO:
    return _answers.get() or sys.stdout


def print_json(document: Json) -> None:
    """Print one JSON document to stdout; a number in it that is NaN or infinite is an error."""
    print(json.dumps(document, indent=2, allow_nan=False), file=_stdout())


def show(report: Report, *, as_json: bool) -> None:
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
    """Return the command line as it was typed, but for passwords."""
    return masked(shlex.join(["opdb", *sys.argv[1:]]))


class Terminal(Display):
    """Shows messages and progress on stderr; nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(partial(note, quiet=quiet))


# Finds the commands, runs one, and turns what ends it into one message and an exit status.

PANELS = ("predict", "measure", "data", "studies")
"""The panels of `opdb --help`, in which a command stands by its module's PANEL."""

TORCH = ("torch", "torchvision")
"""Packages that predictions of stored workloads do without; other commands need them."""

INTERRUPTED = "interrupted; what was finished is stored"


def _found() -> dict[str, str]:
    """Return the module of each command by its name; no command is imported."""
    modules = [f"opdb.studies.{name}" for name in import_module("opdb.studies").COMMANDS]
    names = (each.name for each in iter_modules(import_module("opdb.commands").__path__))
    modules += [f"opdb.commands.{name}" for name in names if not name.startswith("_")]
    return {module.rpartition(".")[2].removesuffix("_"): module for module in modules}


COMMANDS = _found()


class StoppedError(OpdbError):
    """The user pressed Ctrl-C; what was finished is stored."""

    exit_status = 130


class Command(TyperCommand):
    """A command: nothing but its answer is printed to stdout, Ctrl-C is an error like any other."""

    def invoke(self, ctx: Any) -> Any:
        token = _answers.set(sys.stdout)
        try:
            with redirect_stdout(sys.stderr):
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise StoppedError(str(error) or INTERRUPTED) from error
        finally:
            _answers.reset(token)


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
    signal.signal(signal.SIGTERM, stop)
    command = app if run is None else command_of(name, run)
    given = given or ([] if run else ["--help"])
    try:
        left = command(args=given, prog_name=name, standalone_mode=False)
        if left == StoppedError.exit_status:  # typer, which says nothing of it, had not begun
            note("opdb: interrupted; nothing was begun")
    except SystemExit as ended:  # a shell's completion, or a pipe whose reader has what it wanted
        left = ended.code
    except Exception as error:  # noqa: BLE001 - no traceback, whoever's code it was
        left = _told(error, own)
    status = left if isinstance(left, int) else 0
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        status = 1 if isinstance(error, BrokenPipeError) else status or _told(error, own)
    return status


def _told(error: Exception, arguments: Sequence[str]) -> int:
    said = str(error)
    if hasattr(error, "format_message"):  # of typer: a missing argument, an unknown option
        context = error.ctx  # type: ignore[attr-defined]
        usage = f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n"
        note(f"{usage if context else ''}Error: {error.format_message()}")
        return OpdbError.exit_status
    if isinstance(error, ModuleNotFoundError) and error.name in TORCH:
        needed = f"this needs the Python package {error.name!r}, and it is not installed"
        said = f"{needed}: {install()}"
    elif not isinstance(error, OpdbError | OSError):
        said = unforeseen(error)
    if "--debug" in arguments:
        traceback.print_exception(error)
    with suppress(OSError):  # where stderr is full the status alone tells
        note(f"opdb: {said}")
    return getattr(error, "exit_status", OpdbError.exit_status)
