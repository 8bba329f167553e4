"""A writer's turn: it waits for a database that another process has locked, and loses nothing."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

SAID_AFTER_S = 30.0
"""How long a writer waits before it says so."""

_LOCKED = ("database is locked", "lock timeout")
"""The messages of SQLite and PostgreSQL about a lock that another process holds."""

_PAUSE_S = 0.02

_log = logging.getLogger("opdb")

Done = TypeVar("Done")


def patiently(attempt: Callable[[], Done], name: str, *, wait: bool = True) -> Done:
    """Return the result of an attempt, repeated for as long as another process holds a lock.

    `name` is the database's; one attempt waits a moment itself. After a while a warning says so,
    once. Without `wait` there is one attempt.

    Raises:
        DBAPIError, sqlite3.Error: it fails otherwise, or because of a lock and is not to wait.
        KeyboardInterrupt: Ctrl-C ended the wait; its text says what is stored.
    """
    since_s, attempts, warned = time.monotonic(), 0, False
    try:
        while True:
            try:
                return attempt()
            except (DBAPIError, sqlite3.Error) as error:
                if not wait or not _is_of_a_lock(error):
                    raise
            attempts += 1
            if not warned and time.monotonic() - since_s > SAID_AFTER_S:
                warned = True
                _log.warning(
                    "opdb: database %s: another process holds it locked; this one waits until it "
                    "is free, and what it found is kept (Ctrl-C ends the wait)",
                    name,
                )
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt as error:
        if not attempts:
            raise
        raise KeyboardInterrupt(
            f"interrupted while another process held database {name} locked; what was stored "
            "before stands, what waited to be stored is lost"
        ) from error


def _is_of_a_lock(error: DBAPIError | sqlite3.Error) -> bool:
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    return any(sign in said for sign in _LOCKED)
