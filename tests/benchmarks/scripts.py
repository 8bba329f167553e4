"""Scripts of benchmarks/, run as by hand: in a process and with a database of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import python_path

ROOT = Path(__file__).parents[2]


def ran(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script, its database `a.sqlite` in the folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {"PATH": path, "OPDB_DB": str(folder / "a.sqlite"), "PYTHONPATH": python_path()}
    return subprocess.run(
        [str(ROOT / "benchmarks" / name), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **told},
        check=False,
    )
