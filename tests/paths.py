"""Where the processes that tests start find this tree and what Python found for the tests."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_path(*before: Path) -> str:
    """Return a PYTHONPATH: these folders, this tree, and whatever PYTHONPATH holds already."""
    held = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, before), str(ROOT), *([held] if held else [])])
