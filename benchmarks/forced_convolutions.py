"""Compare opdb's forced convolution with torch's own where both run the very same kernels.

Run it on a machine with an NVIDIA GPU that does nothing else:

    python benchmarks/forced_convolutions.py resnet50 vgg16 --batch-size 1 --batch-size 32

Each distinct convolution of the models is captured twice as a CUDA graph of the same number of
calls: as torch runs it, and by each algorithm in turn. Where the two graphs hold the same kernels,
they are replayed in turns, so that drift hits both, and the ratio of their medians is what the way
of calling costs the device. That is done with three sets of tensors, of which the median ratio
counts, for where tensors lie in memory alone makes some per cent. The host's time of one call is
measured beside it, issued eagerly.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

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
PAIRS = 3
HOST_CALLS = 200


@dataclass(frozen=True)
class Compared:
    """One convolution by one algorithm whose kernels are those of torch's own call.

    `ratio` is forced / own device time, over several sets of tensors; host times are seconds of one
    call.
    """

    configuration: str
    algorithm: str
    own_s: float
    ratio: float
    host_s: float
    own_host_s: float


@dataclass(frozen=True)
class Summary:
    """How far forced and own device times lie apart, as shares, and what a call costs the host."""

    cells: int
    median: float
    largest: float
    host_s: float
    own_host_s: float


def summary(found: Sequence[Compared]) -> Summary | None:
    """Sum up what was compared; None where no cell ran the same kernels."""
    if not found:
        return None
    apart = [abs(each.ratio - 1) for each in found]
    return Summary(
        len(found),
        statistics.median(apart),
        max(apart),
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
            pairs = [(own, forced)]  # kept, so that each lies elsewhere in memory
            for _ in range(PAIRS - 1):
                another = built(configuration, algorithm, device)
                pairs.append((build(configuration, device=device), another))
            times = [in_turn(*pair) for pair in pairs]
            yield Compared(
                configuration.key,
                algorithm.name,
                statistics.median(own_s for own_s, _ in times),
                statistics.median(forced_s / own_s for own_s, forced_s in times),
                host_time_s(forced),
                host_time_s(own),
            )


def in_turn(own: Callable[[], Any], forced: Callable[[], Any]) -> tuple[float, float]:
    """Return the median device times of one call of each, in replays that take turns."""
    clock = CudaClock()
    warm_up(own)
    calls = calls_wanted(mean_time_s(own, clock, 5), 1)
    graphs = []
    for step in (own, forced):
        warm_up(step)
        graphs.append(capture(step, calls))
    times: list[list[float]] = [[], []]
    for graph in graphs * 2:
        graph.replay()
    for _ in range(REPLAYS):
        for number, graph in enumerate(graphs):
            first = clock.mark()
            graph.replay()
            last = clock.mark()
            clock.wait(last)
            times[number].append(clock.elapsed_s(first, last) / calls)
    return statistics.median(times[0]), statistics.median(times[1])


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
        print(f"{each.configuration[:12]} {each.algorithm}: {each.ratio:.4f}", file=sys.stderr)
    total = summary(found)
    if total is None:
        print("no algorithm ran the kernels that torch runs: nothing to compare")
        return 0
    print(
        f"{total.cells} cells with torch's own kernels: device time apart by a median of "
        f"{100 * total.median:.2f} %, at most {100 * total.largest:.2f} %; a call takes the host "
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    try:
        return run(parser.parse_args(arguments))
    except OpdbError as error:
        print(f"forced_convolutions: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
