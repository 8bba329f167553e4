"""An open database: one consistent look at it, and writes as transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, Engine, Select, Table, Transaction, insert, select

from opdb.errors import ClaimLostError, DatabaseError
from opdb.store import database, schema
from opdb.store.database import patiently
from opdb.store.rows import Codec, NewRow, Record, numbers

# claims that are held

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


# an open database

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
        """Close the connections."""
        self._end_interrupted()
        self._engine.dispose()

    @property
    def location(self) -> str:
        """The database's name in messages."""
        return database.shown(self.url)

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database; None for any other."""
        return database.file_of(self.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection for one consistent look.

        Raises:
            DatabaseError: the database cannot be read, or a row in it is not a record.
        """
        with database.explained(self.url), self._engine.connect() as connection:
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
    def writing(self, *, alone: bool = False) -> Iterator[Connection]:
        """Yield a connection within one transaction, undone if the block fails.

        SQLite lets one writer in at a time; PostgreSQL many, unless one asks to be alone. Blocks
        do not nest. Where another process is in, this one waits for as long as that takes.

        Raises:
            DatabaseError: the database cannot be written; or another process is in, after Ctrl-C
                ended a wait: what tidies up then waits no more.
        """
        self._end_interrupted()
        with database.explained(self.url):
            self._writer = self._engine.connect()
            with (
                self._writer.execution_options(writes="alone" if alone else True) as connection,
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
        self,
        table: Table,
        row: NewRow,
        reference: str,
        target: Table,
        claim: Claim | None = None,
    ) -> None:
        """Insert a row that refers to another by its content key; a claim must be held.

        Raises:
            DatabaseError: the other is not stored, or the row is there already.
            ClaimLostError: another worker took the claim over.
        """
        with self.writing() as connection:
            if claim is not None:
                check_held(connection, claim)
            known = numbers(connection, target, [row[reference]])
            connection.execute(insert(table), self.numbered(row, reference, known))

    def numbered(self, row: NewRow, reference: str, known: dict[str, int]) -> NewRow:
        """Return a row with the row number of what it refers to in place of the key."""
        key = row[reference]
        if key not in known:
            raise DatabaseError(f"database {self.location}: {reference} {key} is not stored")
        rest = {name: value for name, value in row.items() if name != reference}
        return {**rest, f"{reference}_id": known[key]}
