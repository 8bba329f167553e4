"""Open a database: where it is, whether it is ours, what to say when it cannot be used.

A file is looked at before anything is written to it, so that one which turns out to be
somebody else's is left exactly as it was.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    Transaction,
    create_engine,
    event,
    insert,
    inspect,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from opdb.errors import ClaimLostError, DatabaseError, NoDatabaseError
from opdb.packaging import install, published
from opdb.store import schema
from opdb.store.rows import Codec, NewRow, Record, numbers
from opdb.store.schema import SCHEMA, metadata, opdb_schema
from opdb.tables import masked

SAID_AFTER_S = 30.0

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


FILE_NAME = "opdb.sqlite"
_BUSY_TIMEOUT_S = 30.0
"""How long SQLite itself waits for a lock, deaf to Ctrl-C: a reader, for the moment of a commit."""

_TRIED_S = 0.1
"""How long it waits in one attempt of a writer, which `patiently` repeats."""

_AGREED = 0x6F706462
"""The advisory lock that every opdb takes to write on PostgreSQL: "opdb" in ASCII."""

_DAMAGED = "it is damaged; restore it, or delete it and import its published sets again"

_EXPLANATIONS = (
    ("disk is full", "the disk is full; free some space and run the command again"),
    ("readonly database", "it cannot be written; check its permissions and its folder's"),
    ("file is not a database", "it is not an opdb database"),
    ("malformed", _DAMAGED),
    ("database is locked", "another process holds it locked; try again later"),
    ("lock timeout", "another process holds it locked; try again later"),
    ("server closed the connection", "the server ended the connection; run the command again"),
    ("terminating connection", "the server ended the connection; run the command again"),
    ("connection is bad", "its server cannot be reached; check that it runs, host and port"),
    ("failed to resolve host", "its server cannot be reached; check the host's name"),
    ("unable to open database file", "it cannot be opened; check the path and the permissions"),
    ("disk I/O error", "reading or writing it failed; check the disk"),
    ("FOREIGN KEY", "a row names a configuration, workload or campaign that is not stored"),
)


def package_parent() -> Path:
    """Return the folder that holds the package: in a checkout, the one that holds `db/`."""
    return Path(__file__).resolve().parents[2]


def packaged_folder() -> Path | None:
    """Return the folder of the published sets that a wheel carries; None in a checkout."""
    return published(package_parent())


def published_folder() -> Path | None:
    """Return the parent of the published sets: the wheel's, else the checkout's `db/`, else None.

    A wheel's come first: the folder that packages are installed in may hold another's `db/`.
    """
    packaged = packaged_folder()
    if packaged is not None:
        return packaged
    folder = package_parent() / "db"
    return folder if folder.is_dir() else None


def checkout_database(path: Path) -> Path | None:
    """Return the default database of the checkout that a file lies in; None where it is in none."""
    roots = (each for each in path.resolve().parents if (each / "opdb" / "store").is_dir())
    return next((root / "db" / FILE_NAME for root in roots if (root / "db").is_dir()), None)


def default_url() -> str:
    """Return `OPDB_DB`, else the checkout's `db/opdb.sqlite`, else one in the user's data folder.

    The user's folder serves an installed opdb, and a checkout that this user cannot write to.
    """
    named = os.environ.get("OPDB_DB")
    if named:
        return as_url(named)
    folder = None if packaged_folder() else published_folder()
    if folder is None or not os.access(folder, os.W_OK):
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        folder = Path(data, "opdb")
    return as_url(str(folder / FILE_NAME))


def as_url(name: str) -> str:
    """Return a database URL for a URL or for the path of an SQLite file."""
    if "://" in name:
        return name
    # A question mark, a percent sign in a file's name would mean something in a URL.
    file = URL.create("sqlite", database=str(Path(name).expanduser()))
    return file.render_as_string(hide_password=False)


def file_of(url: str) -> Path | None:
    """Return the file of an SQLite URL; None for another database, or one in memory."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def parse_url(url: str) -> URL:
    """Parse a database URL; `postgresql://` and `postgres://` mean the driver that opdb uses.

    Raises:
        DatabaseError: it is none, or of a database that is not supported.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise DatabaseError(
            f"{masked(url)!r} is not a database: give a file, sqlite:///FILE or "
            "postgresql+psycopg://…"
        ) from None  # the cause may quote a password
    if backend not in ("sqlite", "postgresql"):
        raise DatabaseError(f"database {backend!r} is not supported; use sqlite or postgresql")
    return parsed


def shown(url: str) -> str:
    """Return how a database is named to people: an SQLite file's path, or a URL, no password."""
    file = file_of(url)
    return str(file) if file else masked(parse_url(url).render_as_string(hide_password=True))


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn the database driver's exceptions into one that names the database.

    Raises:
        DatabaseError: the driver failed inside the block.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:  # the latter from outside of a transaction
        message = str(error.orig if isinstance(error, DBAPIError) else error)
        first, *_ = [*message.splitlines(), "no reason given"]
        explanation = next((said for sign, said in _EXPLANATIONS if sign in message), first)
        said = re.sub(r"[^\s'\"]*@", "***@", masked(explanation))
        quotes = "@" in message  # half of a password with that sign, perhaps
        raise DatabaseError(f"database {shown(url)}: {said}") from None if quotes else error


def connect(url: str, *, create: bool, prepare: bool = True) -> Engine:
    """Check a database and return an engine on it; `prepare` creates the tables of an empty one.

    Raises:
        DatabaseError: it does not exist and is not to be created, or it cannot be used.
    """
    file = file_of(url)
    if file is not None:
        check_file(file, create=create)
    engine = _engine(url)
    try:
        with explained(url):
            with engine.connect() as connection:
                is_current = _is_current(connection, url)
            if prepare and not is_current:
                _prepare(engine, url)
    except DatabaseError:
        engine.dispose()
        raise
    return engine


def read_only(file: Path) -> bool:
    """Return whether this user can only read an SQLite file (or cannot write beside it)."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def check_file(file: Path, *, create: bool) -> None:
    """Check that a path may be a database's file, and make its folder; to open a pipe would hang.

    Raises:
        DatabaseError: it may not, or nothing is there and nothing is to be made.
    """
    try:
        if file.exists() and not file.is_file():
            raise DatabaseError(f"database {file}: it is not a file; give a file")
        if not file.exists() and not create:
            raise NoDatabaseError(
                f"database {file}: there is none; opdb harvest or opdb import makes it"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"database {file}: {error.strerror}; check the path") from error


def _engine(url: str) -> Engine:
    parsed, file = parse_url(url), file_of(url)
    if parsed.get_backend_name() != "sqlite":
        try:
            return _postgresql_engine(parsed)
        except (ImportError, NoSuchModuleError) as error:
            raise DatabaseError(
                f"database {shown(url)}: its driver is missing; install it with: "
                f"{install('postgres')}"
            ) from error
    arguments: dict[str, Any] = {"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False}
    immutable = file is not None and read_only(file)
    if immutable and file is not None:
        # WAL wants to write beside the file even to read; a file that cannot be written to
        # does not change under us, which is what `immutable` promises SQLite.
        # Where its owner is at work (a journal is there), it is read beside the owner instead.
        journaled = file.with_name(file.name + "-wal").exists()
        uri = file.resolve().as_uri() + "?mode=ro" + ("" if journaled else "&immutable=1")
        engine = create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(uri, uri=True, **arguments)
        )
    else:
        engine = create_engine(parsed, connect_args=arguments)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "invalidate", _give_up)
    return engine


def _postgresql_engine(url: URL) -> Engine:
    """Return an engine whose connections are tried before use and never wait without an end."""
    arguments: dict[str, Any] = {"connect_timeout": 10, "options": "-c lock_timeout=1s"}
    given = {name: value for name, value in arguments.items() if name not in url.query}
    engine = create_engine(url, connect_args=given, pool_pre_ping=True)
    event.listen(engine, "begin", _begin_on_server)
    return engine


def _begin_on_server(connection: Connection) -> None:
    """Give readers one consistent look, and let one writer in at a time."""
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_AGREED})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _configure(connection: Any, _record: Any) -> None:
    # The driver's own transactions leave DDL outside; ours are begun by `_begin`.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # With WAL a killed process loses nothing that was committed, and a power cut at most the last
    # commits, never the database; a commit then waits for no disk.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -65536")  # KiB: a published set is taken in within it


def _begin(connection: Connection) -> None:
    # A writer takes its lock at once: one that starts by reading could find itself outdated.
    if connection.get_execution_options().get("writes", False):
        driver = connection.connection.dbapi_connection
        _try(driver, lambda: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    else:
        connection.exec_driver_sql("BEGIN")


def _try(driver: Any, work: Callable[[], object]) -> None:
    """Do what needs a lock; SQLite waits for it no longer than one attempt should."""
    driver.execute(f"PRAGMA busy_timeout = {round(1000 * min(_TRIED_S, _BUSY_TIMEOUT_S))}")
    try:
        work()
    finally:
        with suppress(sqlite3.Error):  # an interrupt may have closed it
            driver.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_TIMEOUT_S)}")


def _give_up(connection: Any, _record: Any, _error: BaseException | None) -> None:
    # Closing it is not enough: SQLite keeps a transaction, and its lock, for as long as one of its
    # cursors lives, and the traceback of an interrupt keeps them.
    with suppress(sqlite3.Error):
        connection.rollback()


def _prepare(engine: Engine, url: str) -> None:
    if engine.dialect.name == "sqlite":
        # With a journal readers and a writer work at once. To begin one, a process must be alone,
        # and SQLite itself does not wait for that.
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            switch = partial(driver.execute, "PRAGMA journal_mode = WAL")
            patiently(lambda: _try(driver, switch), shown(url))
    with (
        engine.connect().execution_options(writes=True) as connection,
        patiently(connection.begin, shown(url)),
    ):
        # Another process may have created it between the look and the lock.
        if not _is_current(connection, url):
            metadata.create_all(connection, checkfirst=False)
            connection.execute(insert(opdb_schema).values(number=SCHEMA))


def _is_current(connection: Connection, url: str) -> bool:
    """Return whether a database holds opdb's tables; False for an empty one.

    Raises:
        DatabaseError: the tables are somebody else's, or of another version of opdb.
    """
    tables = sorted(inspect(connection).get_table_names())
    if not tables:
        return False
    if opdb_schema.name not in tables:
        raise DatabaseError(
            f"database {shown(url)}: it is not an opdb database (it holds the tables "
            f"{', '.join(tables[:5])})"
        )
    found = connection.scalar(select(opdb_schema.c.number))
    if found != SCHEMA:
        raise DatabaseError(
            f"database {shown(url)}: its schema {found} is not the one that this version of opdb "
            f"reads ({SCHEMA}); move the file away and opdb makes a new one, or name another "
            "with --db"
        )
    return True


LEASE_S = 900.0
"""Time without a sign of its holder after which a claim is free; longer than one visit takes."""


class Claim(NamedTuple):
    """One claim: which list, what of it, and the worker who has it."""

    scope: str
    task: str
    worker: str


def check_held(connection: Connection, claim: Claim) -> None:
    """Check that a worker still has its claim; until the transaction ends nobody takes it.

    Raises:
        ClaimLostError: it was taken over.
    """
    table = schema.claim
    query = select(table.c.worker).where(table.c.scope == claim.scope, table.c.task == claim.task)
    if connection.execute(query.with_for_update()).scalar() != claim.worker:
        raise ClaimLostError(
            f"another worker took {claim.task.rpartition(' ')[2][:12]} over, as this one gave no "
            f"sign for {LEASE_S:.0f} s; what it measured of it just now is not stored"
        )


# an open database: one consistent look at it, and writes as transactions

DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError)
"""The exceptions that reading a row raises which is not a record."""


class Connected:
    """A database to read from and write to; what is in it is for the classes of each subject."""

    def __init__(self, url: str, engine: Engine) -> None:
        """Wrap an engine that `open_store` has checked."""
        self.url = url
        self._engine = engine
        self._writer: Connection | None = None
        self._hurried = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end_interrupted()
        self._engine.dispose()

    @property
    def location(self) -> str:
        """The database's name in messages."""
        return shown(self.url)

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database; None for any other."""
        return file_of(self.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection for one consistent look.

        Raises:
            DatabaseError: the database cannot be read, or a row in it is not a record.
        """
        with explained(self.url), self._engine.connect() as connection:
            try:
                yield connection
            except UnicodeEncodeError:  # of what is asked for, not of a row
                raise
            except DAMAGE as error:
                raise DatabaseError(
                    f"database {self.location}: a row is damaged: {error}"
                ) from error

    def scalars(self, query: Select[Any]) -> list[Any]:
        """Return the first column of a query's rows, in one look; errors as `reading` has them."""
        with self.reading() as connection:
            return list(connection.scalars(query))

    def records(self, codec: Codec[Record], query: Select[Any]) -> list[Record]:
        """Return a query's rows as records, in one look; errors as `reading` has them."""
        with self.reading() as connection:
            return [codec.read(row) for row in connection.execute(query).mappings()]

    @contextmanager
    def writing(self, *, incoming: Path | None = None) -> Iterator[Connection]:
        """Yield a connection within one transaction, undone if the block fails.

        One writer is let in at a time. Blocks do not nest. Where another process is in, this one
        waits for as long as that takes. In SQLite the tables of `incoming`, another file, can be
        read within the block as those of the schema "incoming".

        Raises:
            DatabaseError: the database cannot be written; or another process is in, after Ctrl-C
                ended a wait: what tidies up then waits no more.
        """
        self._end_interrupted()
        with explained(self.url):
            self._writer = self._engine.connect()
            if incoming is not None:
                driver: Any = self._writer.connection.driver_connection
                self._writer.detach()  # from the pool: closing it ends the attachment, too
                driver.execute("ATTACH ? AS incoming", [str(incoming)])
            with (
                self._writer.execution_options(writes=True) as connection,
                self._begun(connection),
            ):
                yield connection

    def _begun(self, connection: Connection) -> Transaction:
        try:
            begun = patiently(connection.begin, self.location, wait=not self._hurried)
        except KeyboardInterrupt:
            self._hurried = True
            raise
        self._hurried = False
        return begun

    def _end_interrupted(self) -> None:
        """End the last write where Ctrl-C struck between its beginning and its block.

        Its traceback keeps it open, and what tidies up after it would wait for its lock.
        """
        left, self._writer = self._writer, None
        if left is not None and not left.closed:
            left.invalidate()
            left.close()

    def insert_referring(
        self, table: Table, new: Sequence[NewRow], claim: Claim | None = None
    ) -> None:
        """Insert rows that refer to others by their content keys; a claim must be held.

        Raises:
            DatabaseError: one that is referred to is not stored, or a row is there already.
            ClaimLostError: another worker took the claim over.
        """
        with self.writing() as connection:
            if claim is not None:
                check_held(connection, claim)
            for row in self.numbered(connection, table, new):
                connection.execute(insert(table), row)

    def numbered(self, connection: Connection, table: Table, new: Sequence[NewRow]) -> list[NewRow]:
        """Return rows with the row numbers of what they refer to in place of the keys."""
        [inside] = schema.REFERENCES.keys() & table.c.keys()
        outside = schema.REFERENCES[inside]
        known = numbers(connection, metadata.tables[outside], [row[outside] for row in new])
        for key in {row[outside] for row in new} - known.keys():
            raise DatabaseError(f"database {self.location}: {outside} {key} is not stored")
        numbered = [{**row, inside: known[row[outside]]} for row in new]
        return [{name: row[name] for name in row if name != outside} for row in numbered]
