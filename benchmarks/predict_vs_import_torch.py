"""Compare `opdb predict` of ResNet-152 with nothing but `import torch`, in the same minute.

Run it on a machine that does little else, in a checkout with opdb installed:

    python benchmarks/predict_vs_import_torch.py

Every side starts a process of its own, and the sides take turns. "first use" builds the working
database from the published sets first, "database exists" finds it there. Printed are the median
wall times, their ratios to `import torch`, and the bars for these. The database is made in a
folder of its own. `--rounds 15` takes more turns; `--json` prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARS = {"first use": 1.1, "database exists": 0.25}
"""The most that each side may take, as a multiple of `import torch`."""

ROUNDS = 7
ROOT = Path(__file__).resolve().parents[1]

IMPORT_TORCH = ("-c", "import torch")
PREDICT = ("-m", "opdb", "predict", "resnet152", "--target", "0.9", "--batch-size", "32")


def wall_s(arguments: tuple[str, ...], folder: Path) -> float:
    """Run Python with these arguments in a folder; returns the seconds it took.

    Raises:
        SystemExit: it fails; its message is shown.
    """
    environment = {name: value for name, value in os.environ.items() if name != "OPDB_DB"}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    wall_s = time.monotonic() - start
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}")
    return wall_s


def copy_checkout(folder: Path) -> Path:
    """Put the package, its bytecode and the published sets where no database is yet."""
    from compileall import compile_dir
    from shutil import copytree, ignore_patterns

    for name in ("opdb", "db", "measurements"):
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("opdb.sqlite*"))
    compile_dir(folder / "opdb", quiet=1)
    return folder


def measure(rounds: int, folder: Path) -> dict[str, list[float]]:
    """Let the sides take turns; returns the seconds of every turn."""
    times: dict[str, list[float]] = {"import torch": [], "first use": [], "database exists": []}
    wall_s(IMPORT_TORCH, folder)  # the files come into the page cache
    for _ in range(rounds):
        times["import torch"].append(wall_s(IMPORT_TORCH, folder))
        for left in (folder / "db").glob("opdb.sqlite*"):
            left.unlink()
        times["first use"].append(wall_s(PREDICT, folder))
        times["database exists"].append(wall_s(PREDICT, folder))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(options.rounds, copy_checkout(Path(folder)))
    medians = {side: statistics.median(values) for side, values in times.items()}
    ratios = {side: seconds / medians["import torch"] for side, seconds in medians.items()}
    met = all(ratios[side] <= bar for side, bar in BARS.items())
    if options.json:
        sides = {side: {"wall_s": medians[side], "ratio": ratios[side]} for side in medians}
        print(json.dumps({**sides, "rounds": options.rounds, "bar_met": met}))
        return 0 if met else 1
    for side, seconds in medians.items():
        bar = f"  bar {BARS[side]}" if side in BARS else ""
        print(f"{side:15} {seconds:6.3f} s  ratio {ratios[side]:.3f}{bar}")
    print(f"bars {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
