"""Statements that put rows in place: insert, insert what is missing, or replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update
from sqlalchemy.dialects import sqlite

from opdb.records import Call, Configuration
from opdb.store import schema
from opdb.store.rows import CONFIGURATION, NewRow

Key = TypeVar("Key", str, int)

KEYS_AT_ONCE = 10_000
"""Keys bound in one statement; SQLite allows 32,766."""

VALUES_AT_ONCE = 800
"""Values bound in one insert of several rows, which takes half as long as one insert a row."""


def upsert(
    connection: Connection,
    table: Table,
    new: Sequence[NewRow],
    identity: Sequence[str],
    *,
    replace: bool = True,
) -> None:
    """Insert rows; one that is there already is replaced, or left as it is."""
    if new:
        columns = {name: [row[name] for row in new] for name in new[0]}
        upsert_columns(connection, table, columns, identity, replace=replace)


def upsert_columns(
    connection: Connection,
    table: Table,
    new: Mapping[str, Sequence[Any]],
    identity: Sequence[str],
    *,
    replace: bool = True,
    no_less: str | None = None,
) -> None:
    """Insert rows given by column; one that is there is replaced, or left as it is.

    With `no_less` it is replaced by a row that holds at least as much in this column.
    """
    if connection.dialect.name == "postgresql":
        # Many write at once: each locks rows in the same order, so that no two wait in a circle.
        places = list(zip(*(new[name] for name in identity), strict=True))
        order = sorted(range(len(places)), key=places.__getitem__)
        new = {name: [values[row] for row in order] for name, values in new.items()}
    statement = insert_into(connection, table)
    rest = [name for name in new if name not in identity]
    if replace and rest:
        values = {name: statement.excluded[name] for name in rest}
        enough = statement.excluded[no_less] >= table.c[no_less] if no_less else None
        statement = statement.on_conflict_do_update(
            index_elements=list(identity), set_=values, where=enough
        )
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(identity))
    insert_columns(connection, statement, new)


def insert_columns(
    connection: Connection, statement: Any, new: Mapping[str, Sequence[Any]]
) -> None:
    """Run an insert for every row of some columns.

    SQLite takes the values as they are, so its driver is given them at once, several rows in a
    statement: a row at a time, looking each value up takes longer than inserting it.
    """
    if not any(new.values()):
        return
    if connection.dialect.name != "sqlite":
        rows = zip(*new.values(), strict=True)
        connection.execute(statement, [dict(zip(new, row, strict=True)) for row in rows])
        return
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(new))
    columns = [new[name] for name in compiled.positiontup]
    values, left = chain.from_iterable(zip(*columns, strict=True)), len(columns[0])
    row = f"({', '.join('?' * len(columns))})"
    for together in (max(1, VALUES_AT_ONCE // len(columns)), 1):
        times, left = divmod(left, together)
        bound = [tuple(islice(values, together * len(columns))) for _ in range(times)]
        if bound:
            several = ", ".join([row] * together)
            connection.exec_driver_sql(compiled.string.replace(row, several), bound)


def insert_into(connection: Connection, table: Table) -> Any:
    """Return an insert of the connection's dialect, which can say what a conflict does."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes 25 ms that SQLite does not need

        return postgresql.insert(table)
    return sqlite.insert(table)


def save_configurations(
    connection: Connection, configurations: Iterable[Configuration]
) -> dict[str, int]:
    """Insert the configurations that are missing; return the row number of each by its key."""
    new = [CONFIGURATION.row(configuration) for configuration in configurations]
    upsert(connection, schema.configuration, new, ["key"], replace=False)
    return numbers(connection, schema.configuration, [row["key"] for row in new])


def numbers(connection: Connection, table: Table, keys: Iterable[str]) -> dict[str, int]:
    """Return the row number of each key that a table holds."""
    found: dict[str, int] = {}
    for some in in_parts(keys):
        query = select(table.c.key, table.c.id).where(table.c.key.in_(some))
        found.update(map(tuple, connection.execute(query).all()))
    return found


def replace_calls(
    connection: Connection, workload_id: int, calls: Sequence[Call], known: Mapping[str, int]
) -> None:
    """Put a workload's calls in place of those that are there."""
    connection.execute(delete(schema.call).where(schema.call.c.workload_id == workload_id))
    called = [(known[call.configuration.key], call.form) for call in calls]
    operators = Counter(called)  # in the order of their first calls
    columns = {
        "workload_id": [workload_id] * len(operators),
        "number": range(len(operators)),
        "configuration_id": [configuration for configuration, _ in operators],
        "form": [form for _, form in operators],
        "calls": list(operators.values()),
    }
    insert_columns(connection, insert(schema.call), columns)
    numbered = {operator: str(number) for number, operator in enumerate(operators)}
    sequence = " ".join(map(numbered.__getitem__, called))
    workload = schema.workload
    connection.execute(
        update(workload).where(workload.c.id == workload_id).values(sequence=sequence)
    )


def in_parts(keys: Iterable[Key]) -> list[list[Key]]:
    """Cut keys into lists short enough to bind in one statement, duplicates dropped."""
    distinct = list(dict.fromkeys(keys))
    return [
        distinct[start : start + KEYS_AT_ONCE] for start in range(0, len(distinct), KEYS_AT_ONCE)
    ]


def matching(table: Table, conditions: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """Return one equality for each condition that is not None, by column name."""
    return [table.c[name] == value for name, value in conditions.items() if value is not None]
