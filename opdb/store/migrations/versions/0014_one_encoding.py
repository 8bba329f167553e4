"""A workload's memory; raw samples stored as plain JSON, in the one encoding that is read now."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate, chain, groupby
from math import gcd
from typing import Any

import sqlalchemy as sa
from alembic import op

from opdb.store.packing import pack

revision = "0014"
down_revision = "0013"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("workload", sa.Column("memory", TEXT))
    connection = op.get_bind()
    for table, columns in COLUMNS.items():
        for column, renewed in columns.items():
            query = f"SELECT id, {column} FROM {table} WHERE substr({column}, 1, 1) IN ('{{', '[')"
            change = sa.text(f"UPDATE {table} SET {column} = :text WHERE id = :id")
            for identity, text in connection.execute(sa.text(query)).all():
                new = {"text": pack(renewed(json.loads(text))), "id": identity}
                connection.execute(change, new)


def stretch(document: dict[str, Any]) -> dict[str, Any]:
    """Return a stretch of encoding 1 (each time whole) or 2 (differences) in encoding 3."""
    times = document.get("t", [])
    if document["f"] > 1:
        times = list(accumulate(times))
    unit = gcd(*times) or 1
    clocks = [(mhz, len(list(same))) for mhz, same in groupby(document.get("c", []))]
    new = {**document, "t": differences(times, unit), "c": list(chain.from_iterable(clocks))}
    new = {name: value for name, value in new.items() if value != []}
    return {**new, "f": 3, **({"q": unit} if times else {})}


def stretches(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return several stretches in encoding 3."""
    return list(map(stretch, documents))


def neighbours(document: dict[str, Any]) -> dict[str, Any]:
    """Return times among neighbours, each whole before, as differences in one unit."""
    unit = gcd(*document["t"], *document["a"]) or 1
    differing = {name: differences(document[name], unit) for name in ("t", "a")}
    return {**document, **differing, "q": unit}


def layers(times_s: dict[str, float]) -> dict[str, int]:
    """Return times of layers, seconds before, in ns."""
    return {path: round(time_s * 1e9) for path, time_s in times_s.items()}


def differences(times: list[int], unit: int) -> list[int]:
    """Return the first time and then what each adds to the one before, in a unit."""
    units = [time // unit for time in times]
    return [now - before for before, now in zip([0, *units], units, strict=False)]


COLUMNS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "visit": {"stretch": stretch, "restore": stretch, "neighbours": neighbours},
    "host_visit": {"times": list},
    "model_run": {"repeats": stretches, "layers": layers},
}
"""What renews the document of each column of raw samples."""
