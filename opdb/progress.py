"""Progress of work for people: a line when something has happened, every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from opdb.units import show_duration

LINE_EVERY_S = 5.0


class Display:
    """Shows the progress of work to `say`, if given: messages, and steps that are counted."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say

    def note(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def progress(self, total: int, what: str) -> AbstractContextManager[Progress]:
        """Begin a number of steps, which are of one sort: "harvest", "measure"."""
        return nullcontext(Progress(total, what, self._say))


class Progress(Display):
    """The progress of a number of steps."""

    def __init__(
        self, total: int = 0, what: str = "", say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(say)
        self._total, self._what = total, what
        self._done, self._doing = 0, ""
        self._started_s = self._said_s = time.monotonic()

    def doing(self, what: str) -> None:
        self._doing = what

    def done(self, count: int = 1) -> None:
        self._done += count
        now_s = time.monotonic()
        if self._done < self._total and now_s - self._said_s < LINE_EVERY_S:
            return
        self._said_s = now_s
        left_s = (now_s - self._started_s) * (self._total - self._done) / self._done
        left = f", {show_duration(left_s)} left" if self._done < self._total else ""
        self.note(f"{self._what} {self._done}/{self._total} {self._doing}{left}".rstrip())
