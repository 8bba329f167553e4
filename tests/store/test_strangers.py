"""What a stranger's database or set may not do: write elsewhere, lie, or reach a terminal raw."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store import open_store
from opdb.store.exchange import export_set, import_set
from tests.cli.conftest import Opdb, opdb  # noqa: F401
from tests.store.conftest import fill
from tests.store.small_set import unpacked

HOSTILE = ("../../..", "/tmp/x", "..", ".hidden", "a/b", "A100", "", "x\x1b[2J", "x y", "-rf")


def renamed(path: Path, slug: str) -> Path:
    """Give the only device of a database another slug, as somebody could who writes the file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        rename(connection, slug)
    return path


def rename(connection: sqlite3.Connection, slug: str) -> None:
    connection.execute("UPDATE device SET slug = ?", (slug,))
    for table in ("board", "campaign", "board_calibration", "profile", "learned"):
        connection.execute(f"UPDATE {table} SET device = ?", (slug,))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    return path


@pytest.mark.parametrize("slug", HOSTILE)
def test_a_database_whose_device_is_named_like_a_path_is_refused(
    slug: str,
    shard: Path,
    tmp_path: Path,
    opdb: Opdb,  # noqa: F811
) -> None:
    path = renamed(shard, slug.replace("/tmp", str(tmp_path / "elsewhere")))
    before = sorted(tmp_path.rglob("*"))
    for arguments in (
        ("show", "--db", path),
        ("export", tmp_path / "set", "--db", path),
        ("import", path, "--db", tmp_path / "all.sqlite"),
    ):
        ran = opdb(*arguments)
        assert ran.status == 2 and ran.err.count("\n") == 1, ran.err
        assert "is named as no device may be (lower-case letters" in ran.err
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written anywhere"


@pytest.mark.parametrize("slug", HOSTILE)
def test_a_set_whose_device_is_named_like_a_path_is_refused(slug: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with open_store(str(tmp_path / "own.sqlite")) as store:
        fill(store)
        export_set(store, folder, device="nvidia-h200")
    with unpacked(folder) as connection:
        rename(connection, slug)
    with open_store(str(tmp_path / "all.sqlite")) as store:
        with pytest.raises(InputError, match="is named as no device may be"):
            import_set(store, folder)
        assert store.devices() == []
