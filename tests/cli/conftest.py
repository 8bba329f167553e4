from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opdb.cli import main
from opdb.store import open_store
from tests import published
from tests.store.conftest import fill


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


class Opdb:
    """The command line, run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, run: Callable[..., None] | None = None) -> Ran:
        """Run `opdb *arguments`; `run` is a command of its own (`python -m opdb.derive`)."""
        self._capsys.readouterr()
        status = main([str(argument) for argument in arguments], run=run)
        captured = self._capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    def json(self, *arguments: object) -> Any:
        """Return the document that a command prints, which must succeed."""
        ran = self(*arguments, "--json")
        assert ran.status == 0, ran.err
        return json.loads(ran.out)

    def read(self, *arguments: object) -> Any:
        return flat(self.json(*arguments))


@pytest.fixture
def opdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Opdb:
    """Run the command line in an empty folder, on a database of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPDB_DB", str(tmp_path / "opdb.sqlite"))
    return Opdb(capsys)


@pytest.fixture
def database(tmp_path: Path, opdb: Opdb) -> Path:
    path = tmp_path / "opdb.sqlite"
    with open_store(str(path)) as store:
        fill(store)
    return path


@pytest.fixture
def h200(tmp_path: Path, opdb: Opdb) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def flat(found: Any) -> Any:
    """A document with its quantities as in CSV: `time_s`, `time_s_low`, `time_s_high`."""
    if isinstance(found, list):
        return [flat(each) for each in found]
    if not isinstance(found, dict):
        return found
    plain: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict) and value.keys() == {"value", "low", "high", "unit"}:
            plain |= {name: value["value"]}
            plain |= {f"{name}_{end}": value[end] for end in ("low", "high")}
        else:
            plain[name] = flat(value)
    return plain


def read(text: str) -> Any:
    return flat(json.loads(text))


def snapshot(folder: Path) -> dict[Path, Any]:
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}
