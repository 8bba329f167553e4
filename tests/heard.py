"""What is shown of a piece of work, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opdb.progress import Progress
from opdb.records import Visit
from opdb.store import Store


class Heard(Progress):
    """Keeps what is shown; `stop` raises after so many steps, as Ctrl-C does.

    `visits` are those that were made inside `visiting`.
    """

    def __init__(self, stop: int | None = None) -> None:
        self.said: list[str] = []
        self.doings: list[str] = []
        self.planned: list[int] = []
        self.visits: list[Visit] = []
        self.finished = 0
        self._stop = stop

    def note(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def progress(self, total: int, what: str) -> Iterator[Progress]:
        self.planned.append(total)
        yield self

    def doing(self, what: str) -> None:
        self.doings.append(what)

    def done(self, count: int = 1) -> None:
        self.finished += count
        if self.finished == self._stop:
            raise KeyboardInterrupt

    @contextmanager
    def visiting(self, store: Store) -> Iterator[None]:
        before = {visit.id for visit in _made(store)}
        try:
            yield
        finally:
            self.visits = [visit for visit in _made(store) if visit.id not in before]


def _made(store: Store) -> list[Visit]:
    return [visit for board in store.boards() for visit in store.visits(board.uuid)]
