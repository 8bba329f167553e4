"""What a stranger's database or set may not do: write elsewhere, lie, or reach a terminal raw."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opdb.algorithms.names import ALGORITHMS
from opdb.errors import InputError
from opdb.files import file_name
from opdb.records import is_slug
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.store.exchange import export_set, import_set
from opdb.studies.sweep.request import SweepRequest, SweepSpec
from opdb.studies.sweep.rows import folder_of
from tests.cli.conftest import Opdb, opdb  # noqa: F401
from tests.store import samples
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


def test_names_of_files_lead_nowhere() -> None:
    assert file_name("../../../tmp/x") == "_.._.._tmp_x"
    assert file_name("resnet50_default_nvidia-h200") == "resnet50_default_nvidia-h200"
    assert file_name("tests.models:small\x00\n") == "tests.models_small__"


def test_slugs_of_all_that_is_measured_are_allowed() -> None:
    from opdb.bench.session import slug_of

    names = ("NVIDIA H200", "Intel(R) Xeon(R) Platinum 8480+", "AMD EPYC 7763 64-Core Processor")
    assert all(is_slug(slug_of(name)) for name in (*names, "处理器", "x" * 500))
    assert is_slug(samples.DEVICE.slug) and is_slug("nvidia-h200-500w")


def test_results_of_a_sweep_stay_in_their_folder(tmp_path: Path) -> None:
    request = ModelSpec("../../../x", dtype="/../../../../y", memory_format="z/../..")
    cell = SweepSpec(request, "key", 16, ALGORITHMS["default"], "eager")
    asked = SweepRequest((request,), (16,), (cell.algorithm,), "eager", "quick")
    folder = folder_of(asked, cell, "nvidia-h200", tmp_path)
    assert folder.resolve().parent == tmp_path / "quick"
