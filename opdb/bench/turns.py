"""Turns between workers on one host: one at a time measures host times."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Turns(Protocol):
    """The workers that measure on this host at once, each on a device of its own."""

    @property
    def workers(self) -> int:
        """How many they are."""

    def in_turn(self) -> AbstractContextManager[None]:
        """Have the host for oneself: nobody else measures until all have had their turn."""


class Alone:
    """One worker, whose turn it always is."""

    workers = 1

    def in_turn(self) -> AbstractContextManager[None]:
        """Have the host at once."""
        return nullcontext()


ALONE = Alone()
