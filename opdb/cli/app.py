"""Finds the commands, runs one, and turns what ends it into one message and an exit status."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, is_dataclass
from errno import EBADF, ENOSPC
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import takewhile
from pkgutil import iter_modules
from typing import Annotated, Any, TextIO, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from opdb.cli.console import answers_alone, note
from opdb.errors import InputError, OpdbError, UnknownNameError, unforeseen

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
    """Import the module of a command and return the command."""
    return command_of(name, import_module(COMMANDS[name]).run)


def command_of(name: str, run: Callable[..., None]) -> Any:
    """Return the command that a function is."""
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
    """Keep back what libraries warn of; python -W and TORCH_LOGS let it through."""
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
    """Tell of what ended a command in one message; return the exit status."""
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
