"""The benchmark that reads mutated files: it counts them, and keeps those that end in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import hostile_files
from benchmarks.hostile_files import fuzz
from opdb.errors import InputError
from tests.hostile.readers import Reader


def test_it_reads_for_a_time_and_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile_files.main(["0.5", "1", "ncu"]) == 0
    assert " accepted, " in capsys.readouterr().out


def test_what_ends_in_an_internal_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def picky(path: Path) -> None:
        text = path.read_text(errors="replace")
        if "b" in text:
            raise KeyError("b")
        if text != "a c":
            raise InputError("no")

    monkeypatch.chdir(tmp_path)
    assert fuzz("picky", Reader(picky, lambda: ["a c"], ("b", "x")), tmp_path, 0.3, 1) == 1
    assert "KeyError at test_hostile_files.py" in capsys.readouterr().out
    assert b"b" in (tmp_path / "hostile-picky-1-0.json").read_bytes()
