"""How fast one captured graph runs, stretch after stretch, and what changes it.

Run it on a machine with an NVIDIA GPU that does nothing else:

    python -m benchmarks.graph_speeds resnet152 googlenet --json speeds.json

Graphs of many short kernels were seen to run at two speeds some hundred nanoseconds a kernel apart
(docs/sweep.md). Each model, at batch 1, is captured once and replayed for some seconds in stretches
of a tenth of a second: as it is, with pauses in between, while the power is asked for all the time,
beside another process that holds a context and does nothing, and captured anew before each stretch.
It prints the fastest, the median and the slowest stretch of each, and how often one stretch took
another time than the one before it by more than a hundredth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from benchmarks import new_file
from opdb.bench.kernels import launched_kernels
from opdb.bench.platform import detect
from opdb.bench.replay import CudaClock, capture, warm_up
from opdb.errors import OpdbError
from opdb.models import ModelRequest, load
from opdb.models.norms import calibrate_batch_norms

SECONDS = 6.0
STRETCH_S = 0.1
PAUSE_S = 0.05
JUMP = 0.01

IDLE = "import torch; torch.zeros(1, device='cuda'); print('there', flush=True); input()"


@dataclass(frozen=True)
class Speeds:
    """The median replay (seconds) of each stretch under one condition."""

    model: str
    condition: str
    kernels: int
    stretches_s: list[float]

    @property
    def jumps(self) -> int:
        """How often a stretch took another time than the one before it."""
        return sum(abs(b / a - 1) > JUMP for a, b in pairwise(self.stretches_s))

    def __str__(self) -> str:
        low, middle, high = (1e3 * f(self.stretches_s) for f in (min, statistics.median, max))
        apart = "unknown"  # where kernels could not be listed
        if self.kernels:
            apart = f"{1e6 * (high - low) / self.kernels:4.0f} ns"
        return (
            f"{self.model:16} {self.condition:16} {low:8.4f} {middle:8.4f} {high:8.4f} ms, "
            f"{apart} a kernel apart, {self.jumps} jumps in {len(self.stretches_s)}"
        )


def stretch_s(replay: Callable[[], None]) -> float:
    """Return the median time of back-to-back replays that last a stretch together."""
    clock, ended_s = CudaClock(), time.perf_counter() + STRETCH_S
    marks = [clock.mark()]
    while time.perf_counter() < ended_s or len(marks) < 4:
        replay()
        marks.append(clock.mark())
        if len(marks) > 3:
            clock.wait(marks[-3])  # two replays stay queued
    clock.wait(marks[-1])
    return statistics.median(clock.elapsed_s(a, b) for a, b in pairwise(marks))


@contextmanager
def asked_for_power() -> Iterator[None]:
    """Ask the driver for the board's power, again and again, until the block ends."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    over = threading.Event()

    def ask() -> None:
        while not over.wait(1e-3):
            pynvml.nvmlDeviceGetPowerUsage(handle)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


@contextmanager
def beside_another() -> Iterator[None]:
    """Have another process hold a context on the device, and do nothing, until the block ends."""
    command = [sys.executable, "-c", IDLE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield
        finally:
            other.communicate("\n")


def measure(model: str, seconds: float) -> Iterator[Speeds]:
    """Capture a model and replay it under each condition."""
    loaded = load(ModelRequest(model, batch_size=1).checked(), device="cuda")
    calibrate_batch_norms(loaded)

    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    warm_up(step)
    kernels = sum((launched_kernels(step) or {}).values())
    replay = capture(step, 1).replay
    conditions: dict[str, AbstractContextManager[None]] = {
        "as it is": nullcontext(),
        "with pauses": nullcontext(),
        "asked for power": asked_for_power(),
        "beside another": beside_another(),
        "captured anew": nullcontext(),
        "as it is, again": nullcontext(),
    }
    for condition, around in conditions.items():
        found = []
        with around:
            ended_s = time.perf_counter() + seconds
            while time.perf_counter() < ended_s:
                if condition == "with pauses":
                    time.sleep(PAUSE_S)
                anew = condition == "captured anew"
                found.append(stretch_s(capture(step, 1).replay if anew else replay))
        yield Speeds(model, condition, kernels, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("models", nargs="+", help="torchvision's names")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each condition")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all figures")
    asked = parser.parse_args(arguments)
    found = []
    try:
        detect("cuda")
        for model in asked.models:
            for each in measure(model, asked.seconds):
                print(each, flush=True)
                found.append(each)
    except OpdbError as error:
        print(f"graph_speeds: {error}", file=sys.stderr)
        return error.exit_status
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
