"""Where the program begins: `opdb`, and `python -m opdb` without an installed script."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from io import TextIOWrapper


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        # Reading a database makes objects by the hundred thousand, none of which is garbage yet.
        gc.set_threshold(200_000, 10, 3)
        _open_standard_files()
        _show_what_can_be()
        from opdb.cli import main as run

        status = run()
        if "torch" not in sys.modules:  # parts of which complain of what is left
            gc.freeze()  # the process ends: to look for garbage once more helps nobody
        return status
    except KeyboardInterrupt:  # before the command line looks after itself, or after that
        with suppress(OSError):  # stderr may be closed
            os.write(2, b"opdb: interrupted; nothing was begun\n")
        return 130


def _open_standard_files() -> None:
    """Open those of the first three files that are closed on nothing (`opdb show >&-`).

    Else the next file that is opened takes the number, and what is printed is written into it. An
    answer that nobody gets is an error, so that stdout cannot be written.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # opens the lowest number that is free: this one
            os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _show_what_can_be() -> None:
    """Print a question mark for each sign that the terminal's encoding lacks, µ perhaps."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    raise SystemExit(main())
