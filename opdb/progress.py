"""Progress of work for people; this one shows nothing, a command overrides it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


class Progress:
    """Receives the progress of a number of steps."""

    def doing(self, what: str) -> None: ...

    def done(self, count: int = 1) -> None: ...

    def note(self, text: str) -> None: ...


class Display:
    """Shows the progress of work: messages, and steps that are counted."""

    def note(self, text: str) -> None: ...

    def progress(self, total: int, what: str) -> AbstractContextManager[Progress]:
        """Begin a number of steps, which are of one sort: "harvest", "measure"."""
        return nullcontext(Progress())
