"""Time CUDA graphs and eager passes in both states in which a GPU starts kernels.

    python -m benchmarks.launch_state resnet50 efficientnet_b0 vit_b_16 -b 1 32 --json states.json

Kernels on a second stream put the process into one state (`opdb.bench.session`), another process
that makes and ends a CUDA context into the other. Each is reached and timed twice, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opdb.bench.replay import (
    CudaClock,
    Timing,
    capture,
    eager_times_s,
    launched_kernels,
    observe,
    warm_up,
)
from opdb.bench.session import Launching, detect, open_meter
from opdb.derive.costs import stretch_power_w
from opdb.models import checked, load
from opdb.processes import done_apart
from opdb.spec import ModelSpec

LAG_S = 0.015


def make_a_context(device: str) -> None:
    torch.zeros(1, device=device)
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-b", "--batch-size", type=int, nargs="+", default=[1])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    platform = detect("cuda")
    device, meter = platform.torch_device, open_meter(platform)
    launching = Launching(device)
    steps: dict[str, Callable[[], None]] = {"200 tiny kernels": launching.chain}
    for name in options.models:
        for batch in options.batch_size:
            steps[f"{name} b{batch}"] = step_of(ModelSpec(name, batch_size=batch), device)
    graphs, kernels = {}, {}
    for name, step in steps.items():
        warm_up(step)
        graphs[name] = capture(step, 1)
        kernels[name] = sum((launched_kernels(step) or {}).values())
    seen: dict[str, dict[str, list[Any]]] = {name: {"usual": [], "other": []} for name in steps}
    for state in ("usual", "other") * 2:
        if state == "other":
            done_apart(make_a_context, device)
        for name, graph in graphs.items():
            if state == "usual":
                launching.settle()
            timing = Timing(0.2, 0.5, lag_s=LAG_S)
            stretch = observe(graph.replay, 1, CudaClock(), meter, timing).stretch
            time_s = statistics.median(stretch.replay_times_s)
            eager_s = statistics.median(eager_times_s(steps[name], kernels[name], time_s))
            seen[name][state].append((time_s, stretch_power_w(stretch), eager_s))
    print(f"{platform.device.name} {platform.board.uuid} {time.strftime('%Y-%m-%d %H:%M')}")
    print("graph, kernels: usual µs, other µs, ns a kernel; eager the same; W, W; mJ, mJ")
    for name, states in seen.items():
        usual, other = (
            [statistics.fmean(values) for values in zip(*states[state], strict=True)]
            for state in ("usual", "other")
        )
        count = kernels[name]
        print(
            f"{name}, {count}: {usual[0] * 1e6:.1f}, {other[0] * 1e6:.1f}, "
            f"{(usual[0] - other[0]) / count * 1e9:.0f}; {usual[2] * 1e6:.1f}, "
            f"{other[2] * 1e6:.1f}, {(usual[2] - other[2]) / count * 1e9:.0f}; {usual[1]:.0f}, "
            f"{other[1]:.0f}; {usual[0] * usual[1] * 1e3:.1f}, {other[0] * other[1] * 1e3:.1f}"
        )
    if options.json:
        document = {"board": platform.board.uuid, "kernels": kernels, "seen": seen}
        options.json.write_text(json.dumps(document))
    meter.close()


def step_of(request: ModelSpec, device: str) -> Callable[[], None]:
    loaded = load(checked(request), device=device)

    def step() -> None:
        with torch.no_grad():
            loaded.module(*loaded.args, **loaded.kwargs)

    return step


if __name__ == "__main__":
    main()
