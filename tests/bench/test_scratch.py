"""Temporary folders: what a killed process left is removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.bench import scratch
from opdb.bench.scratch import temporary_folder
from opdb.errors import CannotMeasureError

HOLDING = """
from pathlib import Path
from opdb.bench.scratch import temporary_folder

with temporary_folder() as folder:
    Path(folder, "cache").mkdir()
    Path(folder, "cache", "kernel.so").write_text("compiled")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder in the place of the machine's own for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holding() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that holds a folder with something in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_there_for_as_long_as_it_is_used(temporary: Path) -> None:
    with temporary_folder() as first, temporary_folder() as second:
        assert Path(first).parent == temporary and first != second
        assert Path(first).stat().st_mode & 0o077 == 0, "nobody else's"
        Path(first, "a").write_text("")
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() -> None:
    killed, left = holding()
    living, had = holding()
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    with temporary_folder():
        assert not left.exists() and (had / "cache" / "kernel.so").exists()
    living.communicate("\n")
    assert living.returncode == 0 and not had.exists()


def test_other_hosts_and_other_users_folders_are_left_alone(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, left = holding()
    killed.kill()
    killed.communicate()
    others = [temporary / "opdb-0123", temporary / "something"]
    for each in others:
        each.mkdir()
    (temporary / f"{left.name[:-1]}-link").symlink_to(others[1])
    with monkeypatch.context() as there:
        there.setattr(scratch, "host", lambda: "another")
        with temporary_folder():
            assert left.exists()
    with monkeypatch.context() as there:
        there.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
        with temporary_folder():
            assert left.exists()
    with temporary_folder():
        assert not left.exists() and all(each.is_dir() for each in others)


def test_where_nothing_can_be_locked_a_folder_is_made_all_the_same(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some file systems of other hosts: what is not locked is never taken for abandoned."""

    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with temporary_folder() as folder, temporary_folder():
        assert Path(folder).is_dir()
    assert list(temporary.iterdir()) == []


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(CannotMeasureError, match=r"No such file.*TMPDIR"), temporary_folder():
        pass
