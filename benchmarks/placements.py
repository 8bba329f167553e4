"""How far do CUDA graphs of a model differ where its tensors lie elsewhere in memory?

Run it on a machine whose GPU does nothing else:

    python -m benchmarks.placements measurements/*.yml --json placements.json

Weights that partly stay in the L2 may take another time wherever they lie, though repeats of one
graph agree. Each workload (those of the files in float32 at batch 1, for inference) is made in
several processes, and in each several times, behind memory of another size that is kept from it.
Passes of each placement are captured as a CUDA graph, and timed in blocks. Printed is, of each
workload, what a pass touches, the median time over all placements, and how far the largest lies
above the smallest: of a placement's own blocks (the median over placements), of the placements of a
process (likewise), and of all placements. `placements wanted` is how many have to be averaged, so
that the mean is within 1 % (95 %, from their standard deviation).

Fixed beforehand: blocks of 0.1 s, three of each placement, sizes by lot. No placement is left out.
On a CPU, where nothing is captured, it shows that the script works, no more.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch

from benchmarks import new_file, plain_requests
from opdb.bench.replay import clock_for, mean_time_s, prepare
from opdb.errors import OpdbError
from opdb.footprint import touched_bytes
from opdb.lookup.harvesting import harvests_of
from opdb.models import ModelRequest, load
from opdb.models.norms import calibrate_batch_norms
from opdb.tables import SHARE, Column, Table
from opdb.units import MEGA

PROCESSES = 4
PLACEMENTS = 4
BLOCKS = 3
BLOCK_S = 0.1

LARGEST_BYTES = 96 * 2**20
"""What is kept from a model is by lot from nothing to so much."""

WITHIN = 0.01
NORMAL_95 = 1.96

Times: TypeAlias = list[list[float]]
"""Seconds of a pass in each block of each placement."""


@dataclass(frozen=True)
class Row:
    """One workload: what its pass touches (bytes), its time (seconds), and spreads as shares."""

    model: str
    touched_bytes: int
    placements: int
    time_s: float
    blocks: float
    placed: float
    all: float
    wanted: int


ROWS: Table[Row] = Table(
    Column("model", lambda row: row.model, title="model"),
    Column(
        "touched_bytes",
        lambda row: row.touched_bytes,
        title="touches",
        text=lambda row: f"{row.touched_bytes / MEGA:.0f} MB",
        last=True,
    ),
    Column("placements", lambda row: row.placements, title="placements"),
    Column("time_s", lambda row: row.time_s, title="pass", unit="s"),
    Column("blocks", lambda row: row.blocks, title="a placement's blocks", unit=SHARE),
    Column("placed", lambda row: row.placed, title="a process's placements", unit=SHARE),
    Column("all", lambda row: row.all, title="all placements", unit=SHARE),
    Column("wanted", lambda row: row.wanted, title="placements wanted"),
)


def spread(values: Sequence[float]) -> float:
    """Return how far the largest lies above the smallest, as a share of it."""
    return max(values) / min(values) - 1


def row_of(name: str, touched: int, processes: Sequence[Times]) -> Row:
    """Sum up the placements of a workload in several processes."""
    by_process = [[statistics.median(blocks) for blocks in times] for times in processes]
    every = [time_s for times in by_process for time_s in times]
    mean_s = statistics.fmean(every)
    deviation = statistics.stdev(every) / mean_s if len(every) > 1 else 0.0
    return Row(
        model=name,
        touched_bytes=touched,
        placements=len(every),
        time_s=statistics.median(every),
        blocks=statistics.median(spread(blocks) for times in processes for blocks in times),
        placed=statistics.median(map(spread, by_process)),
        all=spread(every),
        wanted=max(1, math.ceil((NORMAL_95 * deviation / WITHIN) ** 2)),
    )


def in_one_process(
    asked: Mapping[str, ModelRequest], device: str, placements: int, seed: int
) -> dict[str, Times | str]:
    """Return the times of each workload in each placement, or why there are none."""
    draw = random.Random(seed)
    found: dict[str, Times | str] = {}
    for name, request in asked.items():
        try:
            found[name] = [_placed(request, device, draw) for _ in range(placements)]
        except (OpdbError, RuntimeError) as error:
            found[name] = str(error)
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()
    return found


def _placed(request: ModelRequest, device: str, draw: random.Random) -> list[float]:
    """Make a workload behind memory of a size by lot; return the seconds of a pass by blocks."""
    kept = torch.empty(draw.randrange(LARGEST_BYTES), dtype=torch.uint8, device=device)
    loaded = load(request, device=device)
    calibrate_batch_norms(loaded)
    kind = "cpu" if device == "cpu" else "cuda"
    with torch.no_grad():
        one_pass = partial(loaded.module, *loaded.args, **loaded.kwargs)
        replay = prepare(one_pass, device_type=kind)
        replays = max(1, math.ceil(BLOCK_S / (replay.calls * replay.call_s)))
        blocks = [mean_time_s(replay.issue, clock_for(kind), replays) for _ in range(BLOCKS)]
    del kept
    return [block / replay.calls for block in blocks]


def requests_of(files: Sequence[Path]) -> tuple[dict[str, ModelRequest], dict[str, int]]:
    """Return the workloads of files at batch 1 in float32, and what their passes touch (bytes).

    Raises:
        OpdbError: a file or a model is not valid.
    """
    requests = plain_requests(files)
    touched = {}
    for request, found, _ in harvests_of(requests, lambda request: None, processes=None):
        if isinstance(found, OpdbError):
            raise found
        touched[request.name] = touched_bytes(found.workload)
    return {request.name: request for request in requests}, touched


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="summary files")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--placements", type=int, default=PLACEMENTS, help="in each process")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write rows and all times")
    given = parser.parse_args(arguments)
    try:
        asked, touched = requests_of(given.files)
    except OpdbError as error:
        print(f"placements: {error}", file=sys.stderr)
        return error.exit_status
    processes = []
    for number in range(given.processes):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            one = pool.submit(in_one_process, asked, given.device, given.placements, number)
            processes.append(one.result())
    rows, left = [], {}
    for name in asked:
        seen = [found[name] for found in processes]
        times = [each for each in seen if not isinstance(each, str)]
        if len(times) == len(seen):
            rows.append(row_of(name, touched[name], times))
        else:
            left[name] = next(each for each in seen if isinstance(each, str))
    if given.json is not None:
        said = {"rows": [asdict(row) for row in rows], "left_out": left, "processes": processes}
        given.json.write_text(json.dumps(said) + "\n")
    print(*ROWS.lines(rows), sep="\n")
    for name, why in left.items():
        print(f"left out: {name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
