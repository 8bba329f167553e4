"""Temporary folders are there for as long as they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.bench.modes import temporary_folder
from opdb.errors import CannotMeasureError


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder in the place of the machine's own for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_folder_is_there_for_as_long_as_it_is_used(temporary: Path) -> None:
    with temporary_folder() as first, temporary_folder() as second:
        assert Path(first).parent == temporary and first != second
        assert Path(first).stat().st_mode & 0o077 == 0, "nobody else's"
        Path(first, "a").write_text("")
    assert list(temporary.iterdir()) == []


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(CannotMeasureError, match=r"No such file.*TMPDIR"), temporary_folder():
        pass
