"""Mutation testing, on a module of a few faults in a repository of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import python_path

ROOT = Path(__file__).parents[2]
MODULE = """\
def least() -> int:
    return 2


LIMIT = least() + 1
USUAL = 4


def total(values: list[int]) -> int | None:
    if len(values) < LIMIT:
        return sum(values)
    return None
"""
IMPORTED_BEFORE = """\
import sys
import made
from benchmarks.mutants import main
sys.exit(main(sys.argv[1:]))
"""
TESTS = """\
from made import USUAL, total


def test_total() -> None:
    assert total([1, 2]) == 3 and total([1] * 9) is None


def test_usual() -> None:
    assert USUAL == 4
"""


def test_what_no_test_notices_is_told(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "test_made.py").write_text(TESTS)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    asked = ["made.py", "--tests", "test_made.py", "--noconftest"]
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED_BEFORE, *asked],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
    )
    *survivors, summed = ran.stdout.splitlines()
    assert ran.returncode == 1, ran.stderr
    assert survivors == [
        "survived: made.py:10: if len(values) < LIMIT:  ->  if len(values) <= LIMIT:",
        "survived: made.py:2: return 2  ->  return 3",
        "survived: made.py:5: LIMIT = least() + 1  ->  LIMIT = least() + 2",
    ]
    assert summed.endswith("4 killed, 0 hung, 3 survived, 0 not run; 57.1 % noticed")
    assert (tmp_path / "made.py").read_text() == MODULE
