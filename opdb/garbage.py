"""When Python looks for garbage: never while much is made of which nothing is garbage yet."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no reference cycles within the block; all else is freed as ever.

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


def keep_all() -> None:
    """Never look at what there is now again, as before the process ends."""
    gc.freeze()
