"""Scripts of benchmarks/, run as by hand: in a process and with a database of their own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests import warm
from tests.paths import python_path

ROOT = Path(__file__).parents[2]


BRIEF = """\
#!/bin/sh
[ "$2" != opdb ] || echo "$3" >>"$(dirname "$0")/commands"
case "$2 $3" in
"opdb modes" | "opdb bench" | "opdb measure")
    shift 2 && exec {warm} -m tests.benchmarks.briefly "$@" ;;
"opdb "*) exec {warm} "$@" ;;
*) exec "{python}" "$@"
esac
"""


def brief_python(folder: Path) -> Path:
    """Make a folder with a `python3` whose opdb measures briefly and is listed in `commands`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    brief = BRIEF.format(warm=shlex.join(warm.command()), python=sys.executable)
    (bin_folder / "python3").write_text(brief)
    (bin_folder / "python3").chmod(0o755)
    return bin_folder


def ran(
    name: str, folder: Path, *arguments: str, first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, its database `a.sqlite` in the folder; programs in `first` go before others."""
    folders = [first, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(str(each) for each in folders if each is not None)
    told = {"PATH": path, "OPDB_DB": str(folder / "a.sqlite"), "PYTHONPATH": python_path()}
    return subprocess.run(
        [str(ROOT / "benchmarks" / name), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **told},
        check=False,
    )
