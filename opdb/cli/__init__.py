"""The command line: the only place that parses, prints and exits.

A command is a module of `opdb.cli.commands`, named as the command, with a function `run`. `run`
takes the options of `opdb.cli.support.options`, makes one call of the library, and shows what it
returns. It imports what is heavy inside the function, raises `OpdbError` for what the user must
know, and leaves the exit status to `main`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from itertools import takewhile
from pkgutil import iter_modules
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from opdb.cli import commands
from opdb.cli.support.console import document_alone, fitted, note
from opdb.cli.support.patience import ended_at_last
from opdb.cli.support.records import taken_apart
from opdb.cli.support.terminal import escaping
from opdb.errors import InputError, OpdbError, UnknownNameError

COMMANDS = {
    module.name.removesuffix("_"): f"{commands.__name__}.{module.name}"
    for module in iter_modules(commands.__path__)
}
"""Every command and its module, by name."""

TORCH = ("torch", "torchvision")
"""Packages that predictions of stored workloads do without; other commands need them."""

_INTERRUPTED = 130
_BROKEN_PIPE = 141


class StoppedError(OpdbError):
    """The user pressed Ctrl-C; what was finished is stored."""

    exit_status = _INTERRUPTED


INTERRUPTED = "interrupted; what was finished is stored"

_stopped = threading.Event()
"""Set by Ctrl-C or a request to end."""


class Command(TyperCommand):
    """A command that drops nothing of what it is told: an option of one value is given once."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        """Read the arguments of the command.

        Raises:
            InputError: an option that takes one value is given several times.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for one in () if ctx.resilient_parsing else given:  # a shell completes what is half typed
            times = given.count(one)
            takes_one = isinstance(one, TyperOption) and not (one.multiple or one.is_flag)
            if times > 1 and takes_one:
                raise InputError(f"{one.opts[0]} is given {times} times; give it once")
        return super().parse_args(ctx, args)


def command_named(name: str) -> Any:
    """Import the module of a command and return the command."""
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name, cls=Command)(taken_apart(import_module(COMMANDS[name]).run))
    return typer.main.get_command(one)


class Commands(TyperGroup):
    """The commands, each module imported when its command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every command's name."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command's module and return its command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        return command_named(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments start with.

        Raises:
            UnknownNameError: there is none of that name.
        """
        unknown = args and not args[0].startswith("-") and args[0] not in COMMANDS
        if unknown and not ctx.resilient_parsing:
            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def make_context(self, *given: Any, **named: Any) -> Any:
        """Read the options before the command; Ctrl-C becomes an error like any other.

        Raises:
            StoppedError: it was pressed.
        """
        try:
            return super().make_context(*given, **named)
        except KeyboardInterrupt as error:
            raise StoppedError("interrupted; nothing was begun") from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C becomes an error like any other, a closed pipe a quiet end."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # The reader (head, a pager) has what it wanted.
            _discard(sys.stdout)
            raise typer.Exit(_BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise StoppedError(str(error) or INTERRUPTED) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0 done; 1 the check that was asked for does not hold; 2 bad input or usage; 3 it cannot be
    measured here; 130 interrupted.
    """
    with escaping():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(given: list[str]) -> int:
    own = list(takewhile("--".__ne__, given))  # what follows is of a job that `submit` submits
    _stopped.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C: what is derived and claimed is tidied up
    status = 0
    try:
        with (
            _heard(),
            document_alone() if "--json" in own else fitted(),
            _unwarned() if {"--quiet", "-q"} & {*own} else nullcontext(),
        ):
            app(args=given, prog_name="opdb")
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0
    except Exception as error:  # noqa: BLE001 - no traceback, whoever's code it was
        status = _told(error, own)
    lost = _flush(sys.stdout)
    if isinstance(lost, BrokenPipeError):
        status = _BROKEN_PIPE
    elif lost is not None and status == 0:
        status = _failed(lost, OpdbError.exit_status, own)
    _flush(sys.stderr)
    return status


def _told(error: Exception, arguments: Sequence[str]) -> int:
    """Tell of what ended a command in one line; return the exit status.

    What comes after Ctrl-C is told as Ctrl-C: a library that was in the middle of something may
    make an error of its own of it.
    """
    if _stopped.is_set() and not isinstance(error, StoppedError):
        return _failed(error, StoppedError.exit_status, arguments, _interrupted(error))
    if isinstance(error, OpdbError):
        return _failed(error, error.exit_status, arguments)
    if isinstance(error, OSError):
        return _failed(error, OpdbError.exit_status, arguments)
    if isinstance(error, UnicodeEncodeError):  # of bytes that a shell took for a name
        said = f"{error.object!r} is no text in {error.encoding}; give a name that is"
        return _failed(error, OpdbError.exit_status, arguments, said)
    if isinstance(error, ModuleNotFoundError) and error.name in TORCH:
        from opdb.models import missing_library

        return _failed(missing_library(error, "for this"), OpdbError.exit_status, arguments)
    return _failed(error, OpdbError.exit_status, arguments, _unforeseen(error))


def _interrupted(error: BaseException | None) -> str:
    """Say what Ctrl-C left, by the interrupt that an error of tidying up came after."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and str(error):
            return str(error)
        error = error.__context__
    return INTERRUPTED


def _unforeseen(error: Exception) -> str:
    """Say in one line what nobody expected: a fault of opdb's own, or in a model's code."""
    [*_, last] = traceback.extract_tb(error.__traceback__)
    said = (str(error).splitlines() or ["nothing more is said"])[0]
    place = f"{last.filename}, line {last.lineno}"
    return f"unforeseen {type(error).__name__}: {said} ({place}); --debug shows how it came there"


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


@contextmanager
def _heard() -> Iterator[None]:
    """Remember Ctrl-C for as long as a command runs; where it is ignored, it stays so."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook, before = _raise_again, sys.unraisablehook
    try:
        with ended_at_last(_end):
            yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before


@contextmanager
def _unwarned() -> Iterator[None]:
    """Keep back what libraries warn of; python -W and TORCH_LOGS let it through.

    What of it matters to a result is told with the result.
    """
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


def _end() -> None:
    """End the process from another thread, saying so; nothing else of it can be trusted to."""
    with suppress(OSError):  # stderr may be closed
        os.write(2, f"opdb: {INTERRUPTED}\n".encode())
    os._exit(StoppedError.exit_status)


def _interrupt(*_: object) -> None:
    _stopped.set()
    raise KeyboardInterrupt


def _raise_again(ignored: sys.UnraisableHookArgs) -> None:
    """Interrupt once more where Ctrl-C struck in a callback, whose errors Python ignores."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident
        threading.Timer(0.01, signal.pthread_kill, [main_thread, signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(ignored)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
    _interrupt()


def _failed(
    error: Exception, status: int, arguments: Sequence[str], said: str | None = None
) -> int:
    if "--debug" in arguments:
        traceback.print_exception(error)
    with suppress(OSError):  # where stderr is full the status alone tells
        note(f"opdb: {said or error}")
    return status
