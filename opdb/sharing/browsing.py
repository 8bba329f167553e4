"""A device's measurements as an SQLite file of flat tables with views, which Datasette opens."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from opdb.records import Json
from opdb.sharing.flat import Flat, meaning

DATABASE = "opdb.sqlite"
METADATA = "metadata.json"
"""What Datasette shows with the tables: titles, licence, what columns are."""

VIEWS = {
    "operators": (
        "What one call of an operator takes on a board, with the operator's arguments.",
        "SELECT kind, pass, parameters, inputs, flops, bytes, costs.* "
        "FROM costs JOIN configurations USING (configuration)",
    ),
    "kinds": (
        "Each kind on each board: how many configurations, and what a call takes.",
        "SELECT kind, pass, board, count(*) AS configurations, min(time_s) AS least_time_s, "
        "avg(time_s) AS mean_time_s, max(time_s) AS most_time_s, avg(power_w) AS mean_power_w "
        "FROM costs JOIN configurations USING (configuration) GROUP BY kind, pass, board",
    ),
    "model_parts": (
        "Where a pass of a model takes its time and dynamic energy: its calls by kind, on the "
        "boards that measured them.",
        "SELECT model, batch_size, dtype, phase, workloads.workload, board, kind, pass, "
        "sum(calls.calls) AS calls, sum(calls.calls * time_s) AS time_s, "
        "sum(calls.calls * dynamic_energy_j) AS dynamic_energy_j "
        "FROM workloads JOIN calls USING (workload) JOIN costs USING (configuration) "
        "JOIN configurations USING (configuration) "
        "GROUP BY workloads.workload, board, kind, pass",
    ),
    "largest_errors": (
        "Runs whose calls are all measured, the largest error of the predicted time first.",
        "SELECT model, batch_size, dtype, phase, mode, board, predicted_time_s, measured_time_s, "
        "abs(attribution_time - 1) AS error_of_time, abs(attribution_energy - 1) AS "
        "error_of_energy, flags FROM runs WHERE all_calls_measured ORDER BY 9 DESC",
    ),
}
"""Views by name: what a row is, and the query."""


def write_database(folder: Path, tables: Iterable[Flat], about: Mapping[str, Json]) -> list[str]:
    """Write the tables with views into an SQLite file, and Datasette's metadata; return the names.

    Raises:
        OSError: a file cannot be written.
    """
    path = folder / DATABASE
    path.unlink(missing_ok=True)
    every = list(tables)
    with closing(sqlite3.connect(path)) as connection, connection:
        for each in every:
            _create(connection, each)
        for name, (_, query) in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {query}")
    text = json.dumps(_metadata(every, about), indent=2) + "\n"
    (folder / METADATA).write_text(text, encoding="utf-8")
    return [DATABASE, METADATA]


def _create(connection: sqlite3.Connection, table: Flat) -> None:
    names = list(table.rows[0]) if table.rows else ["nothing"]
    columns = ", ".join(f'"{name}"' for name in names)
    connection.execute(f"CREATE TABLE {table.name} ({columns})")
    places = ", ".join("?" * len(names))
    rows = (tuple(row.values()) for row in table.rows)
    connection.executemany(f"INSERT INTO {table.name} VALUES ({places})", rows)
    for name in {"configuration", "workload"}.intersection(names):
        connection.execute(f'CREATE INDEX {table.name}_{name} ON {table.name} ("{name}")')


def _metadata(tables: Iterable[Flat], about: Mapping[str, Json]) -> dict[str, Json]:
    described = {each.name: each.about for each in tables}
    described |= {name: text for name, (text, _) in VIEWS.items()}
    columns = {
        each.name: {name: told for name in each.rows[0] if (told := meaning(name))}
        for each in tables
        if each.rows
    }
    return {
        "title": f"opdb: time and energy of PyTorch operators, {about['device']}",
        "license": about["licence"] or "unknown",
        "databases": {
            Path(DATABASE).stem: {
                "tables": {
                    name: {"description": text, "columns": columns.get(name, {})}
                    for name, text in described.items()
                }
            }
        },
    }
