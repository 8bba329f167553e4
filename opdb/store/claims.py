"""Claims with a lease, by which many workers share one list of tasks.

Pending work is derived, so there is no queue of rows to lock: a claim is a row that one transaction
inserts or takes over, and one writer is let in at a time. A claim ends when it is released, when
its lease expires (by the clock of who asks), or at once where its process is found dead on this
machine. Finished work is in the visits, never here: a lost claim loses no result.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from sqlalchemy import delete, select, update

from opdb.store import schema
from opdb.store.database import LEASE_S, Claim
from opdb.store.rows import among, upsert
from opdb.store.store import Store

RENEW_EVERY_S = 60.0


def this_worker() -> str:
    """Return the name of this process: its machine's, and its number there."""
    return f"{platform.node()}:{os.getpid()}"


def _is_dead(worker: str) -> bool:
    """Return whether a worker's process is known to be gone; one of another machine never is."""
    import psutil

    place, number, *_ = worker.split(":")
    return place == platform.node() and not psutil.pid_exists(int(number))


def held(store: Store) -> list[Any]:
    """Return the claims of living workers, by scope and task; `left_s` is left of their leases."""
    table = schema.claim
    with store.reading() as connection:
        left_s = (table.c.until_s - time.time()).label("left_s")
        query = select(table.c.scope, table.c.task, table.c.worker, table.c.board, left_s)
        found = connection.execute(query.order_by(table.c.scope, table.c.task)).all()
    return [row for row in found if row.left_s > 0 and not _is_dead(row.worker)]


class Claims:
    """The tasks of one list that this process holds a lease on: claiming, renewing, releasing."""

    def __init__(self, store: Store, scope: str, board: str) -> None:
        """Claim of a list, `scope`, for a board (UUID); nothing is claimed yet."""
        self._store, self._scope, self._board = store, scope, board
        self._worker = this_worker()
        self._taken: set[str] = set()
        self._renewed_s = time.monotonic()

    def __enter__(self) -> Claims:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._taken:
            self.give_back(set(self._taken))

    def claim(self, task: str) -> Claim:
        return Claim(self._scope, task, self._worker)

    def has(self, task: str) -> bool:
        return task in self._taken

    def take(self, task: str) -> bool:
        """Take a task unless another worker has it; return whether it is this worker's now."""
        self.renew_when_due()
        table, row = schema.claim, self.claim(task)._asdict() | {"board": self._board}
        query = select(table.c.worker, table.c.until_s).where(
            table.c.scope == self._scope, table.c.task == task, table.c.worker != self._worker
        )
        with self._store.writing() as connection:
            now_s = time.time()
            other = connection.execute(query).first()
            if other is not None and other.until_s >= now_s and not _is_dead(other.worker):
                return False
            upsert(connection, table, [row | {"until_s": now_s + LEASE_S}], ["scope", "task"])
        self._taken.add(task)
        return True

    def renew_when_due(self) -> None:
        """Renew the leases, about once a minute."""
        if time.monotonic() - self._renewed_s < RENEW_EVERY_S:
            return
        table = schema.claim
        ours = (table.c.scope == self._scope) & (table.c.worker == self._worker)
        with self._store.writing() as connection:
            until_s = time.time() + LEASE_S
            connection.execute(update(table).where(ours).values(until_s=until_s))
        self._renewed_s = time.monotonic()

    def give_back(self, tasks: Collection[str]) -> None:
        table = schema.claim
        ours = (table.c.scope == self._scope) & (table.c.worker == self._worker)
        with self._store.writing() as connection:
            connection.execute(delete(table).where(ours, among(table.c.task, tasks)))
        self._taken -= set(tasks)

    def others(self) -> set[str]:
        return {
            each.task
            for each in held(self._store)
            if each.scope == self._scope and each.worker != self._worker
        }
