"""The experiment with overwritten bytes: it finds another answer where checksums are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import damaged_bytes
from benchmarks.damaged_bytes import judged
from opdb.store import open_store, seal
from tests.store import samples
from tests.store.conftest import fill


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "small.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    return path


def test_every_damage_ends_in_a_message(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = database.read_bytes()
    asked = ["--database", str(database), "--damages", "20", "--command", "status --json"]
    assert damaged_bytes.main(asked) == 0
    assert "20 damages, 20 commands, 0 other answers" in capsys.readouterr().out
    assert database.read_bytes() == before


def test_another_answer_is_found(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of the seal, another letter of a name is printed."""
    monkeypatch.setattr(seal, "LARGEST_BYTES", seal.LARGEST_BYTES)  # `--no-seals` sets it
    monkeypatch.setattr(damaged_bytes, "drawn", lambda _chance, content: in_a_name(content))
    asked = ["--database", str(database), "--damages", "1", "--command", "list devices"]
    assert damaged_bytes.main([*asked, "--no-seals"]) == 1
    assert "1 other answers" in capsys.readouterr().out


def in_a_name(content: bytes) -> damaged_bytes.Damage:
    """Return a damage of the first letter of the device's name, which follows its slug."""
    name = samples.DEVICE.slug + samples.DEVICE.name
    place = content.index(name.encode()) + len(samples.DEVICE.slug)
    return damaged_bytes.Damage("byte", place, content[place : place + 1], b"z")


def test_a_traceback_or_half_an_answer_is_no_message() -> None:
    right = (0, "{}")
    assert judged(right, (0, "{}"), "") == "same"
    assert judged(right, (2, ""), "opdb: database x: it is damaged") == "error"
    assert judged(right, (2, "{"), "opdb: database x: it is damaged") == "other"
    assert judged(right, (2, ""), "opdb: no\nTraceback (most recent call last)") == "other"
    assert judged(right, (0, "[]"), "") == "other"
