"""The tutorial's examples run in order, on a database as a fresh clone makes it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from opdb.store.opening import build_published

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_examples_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "opdb.sqlite"
    build_published(f"sqlite:///{database}")
    monkeypatch.setenv("OPDB_DB", str(database))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "tutorial", None, 0)
    assert len(examples.examples) > 20
    told: list[str] = []
    ran = doctest.DocTestRunner(optionflags=LOOSELY).run(examples, out=told.append)
    assert not ran.failed, "".join(told)
