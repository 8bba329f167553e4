"""Where the program begins: `opdb`, and `python -m opdb` without an installed script.

The command line takes a moment to import, in which Ctrl-C would show where it got to.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from opdb.garbage import gc_paused, keep_all

_INTERRUPTED = 130
_SAID = b"opdb: interrupted; nothing was begun\n"


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        with _ending_at_once(), gc_paused():
            _open_standard_files()
            _show_what_can_be()
            from opdb.cli import main as run
        status = run()
        keep_all()  # the process ends: to look for garbage once more takes long and helps nobody
        return status
    except KeyboardInterrupt:  # before the command line looks after itself, or after that
        _say_so()
        return _INTERRUPTED


def _open_standard_files() -> None:
    """Open those of the first three files that are closed on nothing (`opdb status >&-`).

    Else the next file that is opened takes the number, and what is printed is written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _show_what_can_be() -> None:
    """Print a question mark for each sign that the terminal's encoding lacks, µ perhaps."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process with one line; where it is ignored, it stays so."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> None:
    _say_so()
    os._exit(_INTERRUPTED)  # an exception may get lost in what is being imported


def _say_so() -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2, _SAID)


if __name__ == "__main__":
    raise SystemExit(main())
