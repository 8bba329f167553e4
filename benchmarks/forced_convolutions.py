"""Compare opdb's forced convolution with torch's own where both run the very same kernels.

Run it on a machine with an NVIDIA GPU that does nothing else:

    python -m benchmarks.forced_convolutions resnet50 vgg16 --batch-size 1 --batch-size 32

Each distinct convolution of the models is captured as a CUDA graph of the same number of calls: as
torch runs it, and by each algorithm in turn. Where the two graphs hold the same kernels, they are
replayed in turns, so that drift hits both, and the ratio of their medians is what the way of
calling costs the device. That is done with three sets of tensors, of which the median ratio counts,
for where tensors lie in memory alone makes some per cent. How much that leaves is told by a
control: torch's own call once more, with tensors of its own, in the same turns. The host's time of
one call is measured beside it, issued eagerly.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks import new_file
from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.algorithms.plans import forget_plans
from opdb.bench.forced import KIND, built, check_algorithms
from opdb.bench.kernels import launched_kernels
from opdb.bench.platform import detect
from opdb.bench.replay import CudaClock, calls_wanted, capture, mean_time_s, warm_up
from opdb.errors import OpdbError, UnsupportedError
from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.operators import build
from opdb.records import Configuration

REPLAYS = 30
SETS = 3
HOST_CALLS = 200
CLOSE = 0.01


@dataclass(frozen=True)
class Compared:
    """One convolution by one algorithm whose kernels are those of torch's own call.

    `ratio` is forced / own device time, `control` that of torch's own call / the same with other
    tensors, both over several sets of tensors; host times are seconds of one call.
    """

    configuration: str
    algorithm: str
    own_s: float
    ratio: float
    control: float
    host_s: float
    own_host_s: float


@dataclass(frozen=True)
class Apart:
    """How far device times lie apart, as shares, and in how many cells by `CLOSE` at most."""

    median: float
    largest: float
    close: int

    @classmethod
    def of(cls, ratios: Iterable[float]) -> Apart:
        """Sum up the ratios of all cells."""
        apart = [abs(ratio - 1) for ratio in ratios]
        return cls(statistics.median(apart), max(apart), sum(share <= CLOSE for share in apart))

    def __str__(self) -> str:
        return (
            f"a median of {100 * self.median:.2f} %, at most {100 * self.largest:.2f} %, "
            f"{self.close} within {100 * CLOSE:.0f} %"
        )


@dataclass(frozen=True)
class Summary:
    """How far device times lie apart, and what a call costs the host.

    `forced` is of forced and own calls, `control` of own calls with other tensors.
    """

    cells: int
    forced: Apart
    control: Apart
    host_s: float
    own_host_s: float


def summary(found: Sequence[Compared]) -> Summary | None:
    """Sum up what was compared; None where no cell ran the same kernels."""
    if not found:
        return None
    return Summary(
        len(found),
        Apart.of(each.ratio for each in found),
        Apart.of(each.control for each in found),
        statistics.median(each.host_s for each in found),
        statistics.median(each.own_host_s for each in found),
    )


def convolutions(models: Sequence[str], batch_sizes: Sequence[int]) -> list[Configuration]:
    """Return the distinct convolutions of models at these batch sizes."""
    found: dict[Configuration, None] = {}
    for model in models:
        for batch_size in batch_sizes:
            workload = harvest(ModelRequest(model, batch_size=batch_size))
            found |= dict.fromkeys(c for c in workload.occurrences() if c.kind == KIND)
    return list(found)


def compare(
    configurations: Sequence[Configuration], algorithms: Sequence[Algorithm], device: str
) -> Iterator[Compared]:
    """Yield every cell in which an algorithm runs the kernels that torch runs."""
    for configuration in configurations:
        own = build(configuration, device=device)
        own()
        kernels = launched_kernels(own)
        for algorithm in algorithms:
            forget_plans()
            forced = built(configuration, algorithm, device)
            try:
                forced()
            except (UnsupportedError, torch.OutOfMemoryError):
                continue
            if kernels is None or launched_kernels(forced) != kernels:
                continue
            sets = [(own, forced, build(configuration, device=device))]
            for _ in range(SETS - 1):  # all are kept, so that each lies elsewhere in memory
                another = built(configuration, algorithm, device)
                once, again = (build(configuration, device=device) for _ in range(2))
                sets.append((once, another, again))
            times = [in_turn(*steps) for steps in sets]
            yield Compared(
                configuration.key,
                algorithm.name,
                statistics.median(own_s for own_s, _, _ in times),
                statistics.median(forced_s / own_s for own_s, forced_s, _ in times),
                statistics.median(again_s / own_s for own_s, _, again_s in times),
                host_time_s(forced),
                host_time_s(own),
            )


def in_turn(*steps: Callable[[], Any]) -> list[float]:
    """Return the median device times of one call of each, in replays that take turns."""
    clock = CudaClock()
    for step in steps:
        warm_up(step)
    calls = calls_wanted(mean_time_s(steps[0], clock, 5), 1)
    graphs = [capture(step, calls) for step in steps]
    for graph in graphs * 2:
        graph.replay()
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(REPLAYS):
        for graph, seen in zip(graphs, times, strict=True):
            first = clock.mark()
            graph.replay()
            last = clock.mark()
            clock.wait(last)
            seen.append(clock.elapsed_s(first, last) / calls)
    return [*map(statistics.median, times)]


def host_time_s(step: Callable[[], Any]) -> float:
    """Return the median time that the host takes to issue one call to a device that waits."""
    times = []
    for _ in range(HOST_CALLS):
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        step()
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print what was found."""
    platform = detect("cuda")
    algorithms = [a for a in ALGORITHMS.values() if a.is_forced]
    check_algorithms(algorithms, platform)
    configurations = convolutions(arguments.models, arguments.batch_size or [1])
    print(f"{len(configurations)} convolutions on {platform.device.name}", file=sys.stderr)
    found = []
    for each in compare(configurations, algorithms, platform.torch_device):
        found.append(each)
        print(
            f"{each.configuration[:12]} {each.algorithm}: {each.ratio:.4f}, "
            f"control {each.control:.4f}",
            file=sys.stderr,
        )
    total = summary(found)
    if total is None:
        print("no algorithm ran the kernels that torch runs: nothing to compare")
        return 0
    print(
        f"{total.cells} cells with torch's own kernels: device time apart by {total.forced}; "
        f"torch's own with other tensors by {total.control}; a call takes the host "
        f"{1e6 * total.host_s:.1f} µs, torch's own {1e6 * total.own_host_s:.1f} µs"
    )
    if arguments.json is not None:
        document = {"summary": asdict(total), "cells": [asdict(each) for each in found]}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("models", nargs="+", help="torchvision's names")
    parser.add_argument("--batch-size", type=int, action="append", help="may be repeated  [1]")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all figures")
    try:
        return run(parser.parse_args(arguments))
    except OpdbError as error:
        print(f"forced_convolutions: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
