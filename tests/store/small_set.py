"""A small real set: twelve calls of a model on one board with all that was seen of them."""

from __future__ import annotations

import lzma
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from opdb.store import open_store
from opdb.store.fields import APART
from opdb.store.opening import FILE, MANIFEST, SAMPLES
from opdb.store.sets import TABLES, export_set, opened, put_samples
from tests import published

Row: TypeAlias = dict[str, Any]

LARGE = published.SET.parent / "apart" / "nvidia-h200-reused"

_CUTS = (
    "UPDATE workload SET sequence = '{sequence}'",
    "DELETE FROM call WHERE number NOT IN ({numbers}) OR workload_id != {workload}",
    "DELETE FROM model_run WHERE workload_id != {workload}",
    "DELETE FROM workload WHERE id != {workload}",
    "DELETE FROM visit WHERE configuration_id NOT IN (SELECT configuration_id FROM call)",
    "DELETE FROM host_visit WHERE configuration_id NOT IN (SELECT configuration_id FROM call)",
    "DELETE FROM cost",
    "DELETE FROM learned",
)


def write_small_set(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside, "cut.sqlite")
        with open_store(str(path)) as store:
            published.import_set(store, LARGE)
        with closing(sqlite3.connect(path)) as connection, connection:
            workload, sequence = connection.execute(
                "SELECT w.id, sequence FROM workload AS w JOIN model_run AS r ON workload_id = w.id"
                " WHERE mode = 'graph' ORDER BY r.id LIMIT 1"
            ).fetchone()
            first = sequence.split(" ")[:12]
            kept = {"sequence": " ".join(first), "numbers": ", ".join(first), "workload": workload}
            for cut in _CUTS:
                connection.execute(cut.format(**kept))
        with open_store(str(path)) as store:
            export_set(store, folder, device="nvidia-h200")


def put_samples_into_rows(folder: Path) -> None:
    """Put the raw samples of a set, which lie in a file of their own, into the rows of visits."""
    with opened(folder, trusted=True) as store, store.writing() as connection:
        put_samples(connection, folder)
        whole = {
            name: connection.exec_driver_sql(f"SELECT * FROM {name}").mappings().all()
            for name in APART
        }
    with unpacked(folder) as changed:
        for name, columns in APART.items():
            places = ", ".join(f"{each} = ?" for each in columns)
            rows = [(*(row[each] for each in columns), row["id"]) for row in whole[name]]
            changed.executemany(f"UPDATE {name} SET {places} WHERE id = ?", rows)
    (folder / SAMPLES).unlink(missing_ok=True)


@contextmanager
def unpacked(folder: Path) -> Iterator[sqlite3.Connection]:
    """Yield the database of a set, to be changed; its manifest, which would tell, is removed."""
    packed = folder / FILE
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside, "set.sqlite")
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            with connection:
                yield connection
        packed.write_bytes(lzma.compress(path.read_bytes(), preset=0))
    (folder / MANIFEST).unlink(missing_ok=True)


def edit(folder: Path, name: str, change: Callable[[list[Row]], object]) -> None:
    """Change the rows of a table (by its name in `TABLES`) of a set's database."""
    table = TABLES[name].name
    with unpacked(folder) as connection:
        rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
        names = list(rows[0]) if rows else []
        change(rows)
        connection.execute(f"DELETE FROM {table}")
        places = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})",
            [[row[each] for each in names] for row in rows],
        )
