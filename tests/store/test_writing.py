"""Rows given by column: each is inserted once and in order, however many one statement takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opdb.store import open_store, schema
from opdb.store.rows import VALUES_AT_ONCE, upsert_columns

ROWS_AT_ONCE = VALUES_AT_ONCE // 4
"""Hosts have four columns."""


def hosts(names: list[str], cores: int) -> dict[str, list[Any]]:
    count = len(names)
    return {"id": names, "cpu": names, "cores": [cores] * count, "system": ["Linux"] * count}


@pytest.mark.parametrize(
    "count", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 2 * ROWS_AT_ONCE + 3]
)
def test_every_row_is_inserted_in_order(tmp_path: Path, count: int) -> None:
    names = [f"{number:04}" for number in reversed(range(count))]
    host = schema.host
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        with store.writing() as connection:
            upsert_columns(connection, host, hosts(names, 8), ["id"])
        with store.reading() as connection:
            query = select(host.c.id, host.c.cpu, host.c.cores).order_by(host.c.id.desc())
            assert connection.execute(query).all() == [(name, name, 8) for name in names]


@pytest.mark.parametrize("count", [ROWS_AT_ONCE // 2, ROWS_AT_ONCE + 1])
@pytest.mark.parametrize(("replace", "cores"), [(True, 16), (False, 8)])
def test_rows_that_come_twice_are_replaced_or_left(
    tmp_path: Path, count: int, replace: bool, cores: int
) -> None:
    """Within one statement, and in a later one."""
    names = [f"{number:04}" for number in range(count)]
    once, again = hosts(names, 8), hosts(names, 16)
    found = {name: [*once[name], *again[name]] for name in once}
    host = schema.host
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        with store.writing() as connection:
            upsert_columns(connection, host, found, ["id"], replace=replace)
        with store.reading() as connection:
            query = select(host.c.id, host.c.cores).order_by(host.c.id)
            assert connection.execute(query).all() == [(name, cores) for name in names]
