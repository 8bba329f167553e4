"""When Python collects garbage: not while many objects are made of which none is garbage yet."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the search for reference cycles within the block; all else is freed as ever.

    Reading a set or importing packages makes objects by the hundred thousand, and Python goes
    through all of them again and again. Only for blocks that end soon.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def gc_off_to_the_end() -> Iterator[None]:
    """The same for a command, which ends the process: none of it is searched afterwards either.

    The first object that is made once garbage is collected again would set off a search of all that
    the block made.
    """
    with gc_paused():
        try:
            yield
        finally:
            keep_all()


@contextmanager
def collected() -> Iterator[None]:
    """Enable the search for reference cycles within the block: it may take long, or much memory."""
    was_on = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not was_on:
            gc.disable()


def keep_all() -> None:
    """Exclude all present objects from later searches, as before the process ends.

    Not where torch is loaded, parts of which complain of what is left.
    """
    if "torch" not in sys.modules:
        gc.freeze()
