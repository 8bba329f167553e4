"""The checksum of a database file: a damaged byte is a message; nothing else is taken for one."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.store import open_store, seal
from tests.store import samples
from tests.store.conftest import fill

DAMAGED = "it is damaged; restore it.*not those that were written last"

OPENED = """
import sys
from opdb.store import open_store
for _ in range(int(sys.argv[2])):
    with open_store(sys.argv[1]) as store:
        store.save_touched_bytes({sys.argv[3]: int(sys.argv[2])})
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with one of everything that no process has open."""
    path = tmp_path / "opdb.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    return path


def sealed(file: Path) -> bool:
    """Whether a seal lies behind the last page."""
    return file.stat().st_size % 4096 == 28


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << place % 8
    file.write_bytes(content)


def altered(file: Path, change: str) -> None:
    """Change a database by a program that knows of no seals."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(change)


def test_every_flipped_byte_is_noticed(file: Path) -> None:
    assert sealed(file) and not seal.broken(file)
    content, chance = file.read_bytes(), random.Random(3)
    inside = chance.sample(range(100, len(content) - 28), 60)
    for place in (*range(100), *inside, *range(len(content) - 28, len(content))):
        flip(file, place)
        assert seal.broken(file), f"byte {place}"
        file.write_bytes(content)


@pytest.mark.parametrize("place", [24, 95, 5000, -29, -28, -1])
def test_a_damaged_database_is_not_opened_and_stays_as_it_is(file: Path, place: int) -> None:
    flip(file, file.stat().st_size + place if place < 0 else place)
    before = file.read_bytes()
    with pytest.raises(DatabaseError, match=DAMAGED):
        open_store(str(file))
    assert file.read_bytes() == before


def test_what_other_programs_write_is_no_damage(file: Path) -> None:
    for change in (
        "UPDATE host SET cpu = 'another'",
        "VACUUM",
        "PRAGMA journal_mode = DELETE",
        "UPDATE host SET cpu = 'a third'",
        "PRAGMA journal_mode = WAL",
    ):
        altered(file, change)
        with open_store(str(file)) as store:
            [host] = store.hosts()
        assert host.cpu in ("another", "a third")
        assert sealed(file) and not seal.broken(file)
    flip(file, 5000)
    assert seal.broken(file)


def test_the_last_to_leave_seals_it(file: Path) -> None:
    with open_store(str(file)) as first, open_store(str(file)) as second:
        second.save_touched_bytes({samples.workload().key: 7})
        second.close()
        assert not sealed(file) or file.with_name("opdb.sqlite-wal").stat().st_size
        first.save_touched_bytes({samples.workload().key: 8})
    assert sealed(file) and not seal.broken(file)


def test_what_a_kill_left_in_the_journal_is_kept_and_sealed(file: Path, tmp_path: Path) -> None:
    left = tmp_path / "left.sqlite"
    with open_store(str(file)) as store:
        store.save_touched_bytes({samples.workload().key: 7})
        for ending in ("", "-wal"):
            shutil.copyfile(f"{file}{ending}", f"{left}{ending}")
    assert Path(f"{left}-wal").stat().st_size
    with open_store(str(left)):
        pass
    assert sealed(left) and not seal.broken(left)


def test_a_file_that_cannot_be_written_is_checked(file: Path) -> None:
    file.chmod(0o444)
    with open_store(str(file)) as store:
        assert store.hosts()
    file.chmod(0o644)
    flip(file, 5000)
    file.chmod(0o444)
    with pytest.raises(DatabaseError, match=DAMAGED):
        open_store(str(file))


def test_a_torn_seal_is_replaced(file: Path) -> None:
    """A full disk or a power cut leaves a part of it, or the room for it."""
    content = file.read_bytes()
    for left in (content[:-10], content[:-28] + bytes(28), content[:-28]):
        file.write_bytes(left)
        with open_store(str(file)):
            pass
        assert file.read_bytes() == content


def test_a_second_look_leaves_the_locks_of_the_first(file: Path) -> None:
    """Closing a file drops a process's locks on it: another would then remove the journal."""
    key = samples.workload().key
    with open_store(str(file)) as store:
        store.save_touched_bytes({key: 1})
        with open_store(str(file)) as second:
            assert second.hosts()
        journal = file.with_name("opdb.sqlite-wal").stat().st_ino
        subprocess.run([sys.executable, "-c", OPENED, str(file), "1", key], check=True)
        assert file.with_name("opdb.sqlite-wal").stat().st_ino == journal
        store.save_touched_bytes({key: 2})
    with open_store(str(file)) as store:
        assert store.hosts()


def test_writers_at_work_are_no_damage(file: Path) -> None:
    """Two others write, leave, and seal, while this one looks again and again."""
    command = [sys.executable, "-c", OPENED, str(file), "20", samples.workload().key]
    writers = [subprocess.Popen(command) for _ in range(2)]
    looks = 0
    while any(writer.poll() is None for writer in writers):
        with open_store(str(file)) as store:
            assert store.hosts()
        looks += 1
    assert [writer.returncode for writer in writers] == [0, 0] and looks > 1
    assert sealed(file) and not seal.broken(file)
