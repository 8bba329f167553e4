"""Where the program begins: `opdb`, and `python -m opdb` without an installed script."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from opdb.garbage import gc_paused, keep_all


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        with gc_paused():
            _open_standard_files()
            _show_what_can_be()
            from opdb.cli import main as run
        status = run()
        keep_all()  # the process ends: to look for garbage once more takes long and helps nobody
        return status
    except KeyboardInterrupt:  # before the command line looks after itself, or after that
        with suppress(OSError):  # stderr may be closed
            os.write(2, b"opdb: interrupted; nothing was begun\n")
        return 130


def _open_standard_files() -> None:
    """Open those of the first three files that are closed on nothing (`opdb show >&-`).

    Else the next file that is opened takes the number, and what is printed is written into it. An
    answer that nobody gets is an error: Python's own stdout is one that cannot be written.
    """
    lost = False
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
            lost = lost or name == "stdout"
    if lost:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def _show_what_can_be() -> None:
    """Print a question mark for each sign that the terminal's encoding lacks, µ perhaps."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    raise SystemExit(main())
