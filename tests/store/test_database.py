"""What may be in the place of a database, and what is said of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.records import Configuration
from opdb.store import Store, default_url, open_store
from opdb.store.schema import SCHEMA
from tests import warm
from tests.store import samples
from tests.store.conftest import fill
from tests.users import nobody

ROOT = Path(__file__).parents[2]


def text_file(path: Path) -> None:
    path.write_text("this is no database, " * 99)


def newer(path: Path) -> None:
    open_store(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE opdb_schema SET number = 99")
        connection.commit()


def damaged(path: Path) -> None:
    with open_store(str(path)) as store:
        fill(store)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xaa" * 3996
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (text_file, "it is not an opdb database"),
        (newer, f"its schema 99 is not the one that this version of opdb reads ({SCHEMA})"),
        (damaged, "it is damaged"),
    ],
)
def test_what_is_no_database_of_ours_is_left_alone(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "some.sqlite"
    make(path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(DatabaseError) as caught:
        open_store(str(path))
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_missing_database_is_created_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "new" / "some.sqlite"
    with pytest.raises(DatabaseError, match="there is none"):
        open_store(str(path), create=False)
    assert not path.parent.exists()
    open_store(f"sqlite:///{path}").close()
    assert path.exists()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """To open a pipe would wait for somebody to write."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("pipe", "it is not a file"),
        ("/dev/null", "it is not a file"),
        (".", "it is not a file"),
        ("file/new.sqlite", "check the path"),
    ):
        with pytest.raises(DatabaseError, match=said):
            open_store(str(tmp_path / name))


def test_the_default_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPDB_DB", str(tmp_path / "mine.sqlite"))
    assert default_url() == f"sqlite:///{tmp_path / 'mine.sqlite'}"
    monkeypatch.delenv("OPDB_DB")
    monkeypatch.setattr("opdb.store.database.package_parent", lambda: tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_url() == f"sqlite:///{tmp_path / 'data' / 'opdb' / 'opdb.sqlite'}"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_url() == f"sqlite:///{tmp_path / '.local' / 'share' / 'opdb' / 'opdb.sqlite'}"
    (tmp_path / "db").mkdir()
    assert default_url() == f"sqlite:///{tmp_path / 'db' / 'opdb.sqlite'}"


def test_a_full_disk_is_explained_and_changes_nothing(sqlite: Store) -> None:
    filled = sqlite
    fill(filled)
    with filled.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    many = [Configuration(kind="relu", parameters={"n": number}) for number in range(5000)]
    with pytest.raises(DatabaseError, match="the disk is full"):
        filled.save_configurations(many)
    assert len(filled.configurations()) == 4
    filled.save_visit(samples.visit("after"))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE cost SET time_s_mean = 'abc'", "time_s is "),
        ("UPDATE cost SET time_s_mean = NULL", "time_s is "),
        (
            """UPDATE campaign SET calibration = json_set(calibration, '$.base_power_w', -1.5)""",
            "base power of -1.5 W",
        ),
        (
            """UPDATE cost SET host_time_s = replace(host_time_s, '"mean":', '"mean":"x","y":')""",
            "expected float, got 'x'",
        ),
        (
            "UPDATE campaign SET calibration = "
            "json_set(calibration, '$.base_power_w', json('9e999'))",
            "expected float, got inf",
        ),
    ],
)
def test_a_value_of_another_type_is_a_damaged_row(
    tmp_path: Path, statement: str, said: str
) -> None:
    path = tmp_path / "damaged.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount > 0
    with (
        open_store(str(path)) as store,
        pytest.raises(DatabaseError, match=f"a row is damaged: {said}"),
    ):
        store.costs("GPU-1")
        store.campaigns(samples.DEVICE.slug)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="opdb-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_database_that_cannot_be_written_is_read(shared_folder: Path) -> None:
    path = shared_folder / "some.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    with nobody(), open_store(str(path)) as store:
        assert store.workloads() == [samples.workload()]
        with pytest.raises(DatabaseError, match="cannot be written"):
            store.save_visit(samples.visit("new"))
    assert [each.name for each in shared_folder.iterdir()] == ["some.sqlite"]


def test_many_processes_create_one_database_at_once(url: str) -> None:
    program = "import sys; from opdb.store import open_store; open_store(sys.argv[1]).devices()"
    openers = [subprocess.Popen(warm.command("-c", program, url), cwd=ROOT) for _ in range(4)]
    assert [opener.wait(timeout=60) for opener in openers] == [0, 0, 0, 0]
