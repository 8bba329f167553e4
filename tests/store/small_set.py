"""A small real set: twelve calls of a model on one board with all that was seen of them."""

from __future__ import annotations

import csv
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from opdb.store import open_store, schema
from opdb.store.exchange import export_set, import_set
from opdb.store.set_reading import read_set
from opdb.store.set_samples import SAMPLES, with_samples
from opdb.store.sets import read_fields, write_file
from tests import published

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
    """Write it."""
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside, "cut.sqlite")
        with open_store(str(path)) as store:
            import_set(store, LARGE, contents=read_set(LARGE))
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
    """Write a set as release 0.1.0 does: raw samples in the rows of the visits."""
    for table in (schema.visit, schema.host_visit):
        path = folder / f"{table.name}s.csv"
        with path.open(newline="") as stream:
            header = next(csv.reader(stream))
        write_file(path, header, with_samples(table, read_fields(path, header)).rows())
        (folder / SAMPLES[table.name]).unlink()


def edit(path: Path, change: Callable[[list[dict[str, str]]], None]) -> None:
    """Change the rows of a file of a set."""
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = list(rows[0])
    change(rows)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
