"""Compare harvesting torchvision's 80 classification models with torchinfo's summary of them.

Run it on a machine that does little else, with the development extra installed:

    python benchmarks/harvest_vs_torchinfo.py

Each side runs in a process of its own and builds every model itself, imports included, at batch 1
and 3x224x224. Printed are both wall times, both peaks of resident memory, and their ratios; the
bars are a quarter of torchinfo's time and 1.2 GB. It takes some minutes, nearly all of them
torchinfo's. `--models resnet50 vgg16` names other models; `--json` prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

TIME_BAR = 0.25
MEMORY_BAR_BYTES = 1_200_000_000


def harvest_all(names: Sequence[str]) -> dict[str, int]:
    from opdb.harvest import harvest
    from opdb.models import ModelRequest

    workloads = [harvest(ModelRequest(name, source="torchvision")) for name in names]
    return {
        "models": len(workloads),
        "calls": sum(len(workload.calls) for workload in workloads),
        "configurations": len({c for workload in workloads for c in workload.occurrences()}),
        "unsupported": sum(sum(workload.unsupported.values()) for workload in workloads),
    }


def summarize_all(names: Sequence[str]) -> dict[str, int]:
    import torchinfo
    from torchvision import models

    layers = 0
    for name in names:
        module = models.get_model(name, weights=None)
        shown = torchinfo.summary(module, input_size=(1, 3, 224, 224), verbose=0)
        layers += len(shown.summary_list)
    return {"models": len(names), "layers": layers}


SIDES: dict[str, Callable[[Sequence[str]], dict[str, int]]] = {
    "harvest": harvest_all,
    "torchinfo": summarize_all,
}


def run_side(side: str, names: Sequence[str]) -> dict[str, float]:
    """Run one side in a process of its own; returns its counts, wall_s and peak_bytes."""
    command = [sys.executable, "-W", "ignore", __file__, "--side", side, "--models", *names]
    start = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall_s = time.monotonic() - start
    counts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"wall_s": wall_s, **counts}


def classification_models() -> list[str]:
    from torchvision import models

    return list(models.list_models(module=models))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", metavar="NAME")
    parser.add_argument(
        "--side", choices=sorted(SIDES), help="run this side alone, in this process"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.models or classification_models()
    if options.side:
        counts = SIDES[options.side](names)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak_bytes = peak if sys.platform == "darwin" else peak * 1024
        print(json.dumps({**counts, "peak_bytes": peak_bytes}))
        return 0
    result = {side: run_side(side, names) for side in SIDES}
    ratio = result["harvest"]["wall_s"] / result["torchinfo"]["wall_s"]
    met = ratio <= TIME_BAR and result["harvest"]["peak_bytes"] <= MEMORY_BAR_BYTES
    if options.json:
        print(json.dumps({**result, "time_ratio": ratio, "bars_met": met}))
        return 0 if met else 1
    for side, numbers in result.items():
        print(f"{side:10} {numbers['wall_s']:7.1f} s {numbers['peak_bytes'] / 1e9:6.2f} GB peak")
    print(f"time ratio {ratio:.3f} (bar {TIME_BAR}); memory bar {MEMORY_BAR_BYTES / 1e9} GB")
    print("both bars met" if met else "a bar is missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
