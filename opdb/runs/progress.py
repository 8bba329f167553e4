"""What people are shown of work while it goes on; here nothing, which a command overrides."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


class Progress:
    """Hears of a number of steps as they are made."""

    def doing(self, what: str) -> None:
        """Hear what runs now."""

    def done(self, count: int = 1) -> None:
        """Hear that one step, or more, is over."""

    def note(self, text: str) -> None:
        """Hear something that is to stay, a line of its own."""


class Display:
    """Where work says what it does: in messages, and in steps that it counts."""

    def note(self, text: str) -> None:
        """Hear a message."""

    def progress(self, total: int, what: str) -> AbstractContextManager[Progress]:
        """Begin a number of steps, which are of one sort: "harvest", "measure"."""
        return nullcontext(Progress())
