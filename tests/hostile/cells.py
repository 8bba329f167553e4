"""Databases whose cells a stranger wrote: what commands read of one is a record, or a message.

A file of such cells has a line for each: table.column, and the value that the first row gets, with
all that are like it.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from opdb.predict.predictor import predictor_for
from opdb.store import open_store, schema
from opdb.store.costs import derived
from tests.store.conftest import fill

FIRST = "SELECT {column} FROM {table} WHERE {column} NOT NULL LIMIT 1"


@cache
def filled() -> bytes:
    """Return the file of a database with one of everything."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "db.sqlite")
        with open_store(str(path)) as store:
            fill(store)
        return path.read_bytes()


def read_cells(path: Path) -> None:
    """Write the cells that a file lists into a database, and read it as commands do."""
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside, "db.sqlite")
        made.write_bytes(filled())
        write_cells(made, path)
        _use(made)


def write_cells(database: Path, listed: Path) -> None:
    """Write the cells that a file lists into a database."""
    with closing(sqlite3.connect(database)) as connection, connection, suppress(csv.Error):
        known = sorted(_cells(connection))
        for row in csv.reader(io.StringIO(listed.read_text(errors="replace"))):
            _write(connection, known, row)


def _write(connection: sqlite3.Connection, known: Sequence[str], row: list[str]) -> None:
    with suppress(IndexError, sqlite3.Error):  # such a value SQLite does not take
        table, column = _named(row[0], known).split(".")
        first = FIRST.format(table=table, column=column)
        statement = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {column} = ({first})"
        connection.execute(statement, (row[1],))


def _named(name: str, known: Sequence[str]) -> str:
    """Return the cell of a name; of any other text, one of them."""
    return name if name in known else known[zlib.crc32(name.encode()) % len(known)]


def _use(database: Path) -> None:
    with open_store(str(database), create=False) as store:
        store.heads()
        store.model_runs()
        store.board_calibrations()
        for board in store.boards():
            derived(store, board.uuid)
        for device in store.devices():
            store.standing(device.slug)
            store.learned(device.slug)
            store.run_ratios(device.slug)
            store.profiles(device.slug)
            predictor = predictor_for(store, device.slug)
            for workload in store.workloads():
                predictor.answer(workload, "eager")


def _cells(connection: sqlite3.Connection) -> dict[str, str]:
    """Return what each cell of a database holds, by table.column."""
    found = {}
    for table in schema.metadata.sorted_tables:
        for column in table.c:
            query = FIRST.format(table=table.name, column=column.name)
            for (value,) in connection.execute(query):
                found[f"{table.name}.{column.name}"] = str(value)
    return found


def seeds(database: bytes) -> list[str]:
    """Return one file for each cell of a database, with what it holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "db.sqlite")
        path.write_bytes(database)
        with closing(sqlite3.connect(path)) as connection:
            held = _cells(connection)
    found = []
    for name, value in held.items():
        line = io.StringIO()
        csv.writer(line).writerow([name, value])
        found.append(line.getvalue())
    return found
