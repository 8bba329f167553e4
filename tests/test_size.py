"""The size of the code may only fall: nothing grows beyond the limits that the last change left."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Lower these whenever a change makes its part smaller; never raise them.
LIMITS = {
    "core": {"statements": 22_337, "lines": 42_133, "files": 127},
    "studies": {"statements": 4_264, "lines": 7_850, "files": 21},
    "tests": {"lines": 31_980, "files": 265},
    "benchmarks": {"lines": 2_486, "files": 10},
}


def test_nothing_has_grown() -> None:
    code = set((ROOT / "opdb").rglob("*.py"))
    studies = set((ROOT / "opdb" / "studies").rglob("*.py"))
    found = {
        "core": sizes(code - studies),
        "studies": sizes(studies),
        "tests": sizes((ROOT / "tests").rglob("*.py")),
        "benchmarks": sizes((ROOT / "benchmarks").rglob("*.py")),
    }
    grown = [
        f"{part}: {found[part][name]:,} {name}, at most {limit:,}"
        for part, limits in LIMITS.items()
        for name, limit in limits.items()
        if found[part][name] > limit
    ]
    assert not grown, "; ".join(grown)


def sizes(paths: Iterable[Path]) -> dict[str, int]:
    texts = [path.read_text() for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    return {
        "statements": sum(isinstance(node, ast.stmt) for node in nodes),
        "lines": sum(text.count("\n") for text in texts),
        "files": len(texts),
    }
