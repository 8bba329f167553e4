"""Settings that PostgreSQL needs and SQLite does not: many remote writers, and it may be down."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 30
"""How long a statement waits for a row that another transaction is about to change."""

TRIED_S = 1
"""How long one attempt of a writer waits to be let in; `patiently` repeats it."""

_AGREED = 0x6F706462
"""The advisory lock that every opdb takes to write: "opdb" in ASCII."""

EXPLANATIONS = (
    ("password authentication failed", "the server refuses this user or password"),
    ("no password supplied", "the server asks for a password; give one in the URL or in ~/.pgpass"),
    ("no pg_hba.conf entry", "the server refuses this user from this machine"),
    ('role "', "the server has no such user; make it with createuser, or name another in the URL"),
    ("server closed the connection", "the server ended the connection; run the command again"),
    ("terminating connection", "the server ended the connection; run the command again"),
    ("too many clients", "the server has as many connections as it takes; try again later"),
    ("connection slots are reserved", "the server has as many connections as it takes; try later"),
    ("connection is bad", "its server cannot be reached; check that it runs, host and port"),
    ("connection failed", "its server cannot be reached; check that it runs, host and port"),
    ("connection timeout", "its server does not answer; check that it runs, host and port"),
    ("could not translate host", "its server cannot be reached; check the host's name"),
    ("failed to resolve host", "its server cannot be reached; check the host's name"),
    ("lock timeout", "another process holds it locked; try again later"),
    ("permission denied", "this user may not read or write it; ask its owner for the rights"),
    ("read-only transaction", "it cannot be written: its server only serves a copy"),
    ("No space left on device", "the server's disk is full; free some space there and run again"),
    ("NUL", "a text holds the character NUL, which PostgreSQL cannot store"),
    ("violates foreign key", "a row names a configuration, workload or campaign not stored"),
)
"""The server's messages, and what each means to the user."""


def explanation(message: str) -> str:
    """Return the message of a failure; in the server's own words, one line, where none fits."""
    missing = re.search(r'database "([^"]+)" does not exist', message)
    if missing:
        return f"its server has no database {missing[1]!r}; make it with: createdb {missing[1]}"
    first = next(iter(message.splitlines()), "no reason given")
    return next((said for sign, said in EXPLANATIONS if sign in message), first)


def engine(url: URL) -> Engine:
    """Return an engine whose connections are tried before use and never wait without an end."""
    arguments: dict[str, Any] = {"application_name": "opdb", "connect_timeout": CONNECT_TIMEOUT_S}
    given = {name: value for name, value in arguments.items() if name not in url.query}
    made = create_engine(url, connect_args=given, pool_pre_ping=True)
    event.listen(made, "connect", _configure)
    event.listen(made, "begin", _begin)
    return made


def _configure(connection: Any, _record: Any) -> None:
    connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")
    connection.commit()


def _begin(connection: Connection) -> None:
    """Give readers one consistent look, and let one writer in at a time."""
    if not connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return
    # In one statement, so in one trip to the server; a target list is evaluated from the left.
    connection.exec_driver_sql(
        f"SELECT set_config('lock_timeout', '{TRIED_S}s', true), "
        f"pg_advisory_xact_lock({_AGREED}), "
        f"set_config('lock_timeout', '{LOCK_TIMEOUT_S}s', true)"
    )


def may_write(connection: Connection) -> bool:
    """Return whether this user may add visits."""
    asked = text("SELECT has_table_privilege('visit', 'INSERT')")
    return bool(connection.execute(asked).scalar_one())
