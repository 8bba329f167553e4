from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT, python_path


def test_a_process_elsewhere_finds_this_tree_and_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "held"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"only_{name}.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "held"))
    done = subprocess.run(
        [sys.executable, "-c", "import only_first, only_held, tests; print(tests.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path(tmp_path / "first")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{ROOT / 'tests' / '__init__.py'}\n", "")


@pytest.mark.parametrize("held", [None, ""])
def test_where_nothing_is_held_no_folder_is_added(
    held: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry would be the folder that a process runs in."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if held is not None:
        monkeypatch.setenv("PYTHONPATH", held)
    assert python_path() == str(ROOT)


def test_no_test_starts_a_process_on_another_pythonpath() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        if path in (ROOT / "tests" / "paths.py", ROOT / "tests" / "warm.py", Path(__file__)):
            continue
        told = [line for line in path.read_text().splitlines() if '"PYTHONPATH"' in line]
        assert all("python_path(" in line for line in told), path
