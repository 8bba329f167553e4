"""What a stranger's set may not do: name a device as no device may be named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store import open_store
from opdb.store.sets import export_set
from tests.published import import_set
from tests.store.conftest import fill
from tests.store.small_set import unpacked

HOSTILE = ("../../..", "/tmp/x", "..", ".hidden", "a/b", "A100", "", "x\x1b[2J", "x y", "-rf")


def rename(connection: sqlite3.Connection, slug: str) -> None:
    connection.execute("UPDATE device SET slug = ?", (slug,))
    for table in ("board", "campaign", "board_calibration", "profile", "learned"):
        connection.execute(f"UPDATE {table} SET device = ?", (slug,))


@pytest.mark.parametrize("slug", HOSTILE)
def test_a_set_whose_device_is_named_like_a_path_is_refused(slug: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with open_store(str(tmp_path / "own.sqlite")) as store:
        fill(store)
        export_set(store, folder, device="nvidia-h200")
    with unpacked(folder) as connection:
        rename(connection, slug)
    with open_store(str(tmp_path / "all.sqlite")) as store:
        with pytest.raises(InputError, match=r"device.*, column slug: "):
            import_set(store, folder)
        assert store.devices() == []
