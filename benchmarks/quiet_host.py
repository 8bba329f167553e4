"""Do the host times of operators add up to eager passes that wait for the host?

Run it on a machine whose GPU does nothing else:

    python -m benchmarks.quiet_host measurements/resnet*.yml measurements/zoo/*.yml --json host.json

Of each workload (those of the files in float32 at batch 1), two sorts of blocks alternate that last
as long: all its calls in the order of the model, as `opdb bench` times them, and eager passes. All
workloads are made first and then take turns until the time is up, in three processes one after the
other. The blocks of all processes count together. Of the blocks of operators those with the lowest
totals are taken, a tenth, and of the blocks of passes a tenth by themselves: neither selects the
other's.
Printed are the sum of the operators over the pass, in quiet time and by medians of all blocks; and
every other block of passes over those between them, the control, in quiet time and by medians: what
is left when nothing is predicted. `slower` is how many times as long as in quiet moments the pass
took: at the median, and from the 5th to the 95th percentile.

The sum has the calls and the Python around them, timed on meta as the workload is harvested
(`opdb.bench.around`); with --json it stands beside the number of containers, which counted before.

Fixed beforehand: the share, a tenth. A workload is left out, with the reason, where one of its
calls cannot be built, where the device has more than a twentieth of the block's time left to do
when its passes have been issued (then it does not wait for the host), or where there are fewer than
50 blocks. No block is left out: a process that is never quiet counts.

Where the machine lets a process count its instructions, those of a pass stand beside the sum of its
operators', too. On a CPU the host is the device: there it shows that the script works, no more.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import torch

from benchmarks import new_file, plain_requests
from opdb.bench.around import Known, with_around
from opdb.bench.calibrate import container_time_s
from opdb.bench.host import Timed, built_on, by_call, round_of
from opdb.compose.calls import Pass
from opdb.derive.quiet import (
    BLOCK_S,
    LEAST_BLOCKS,
    Slowdown,
    host_slowdown,
    quiet_time_s,
    quiet_times_s,
)
from opdb.errors import OpdbError, UnsupportedError
from opdb.garbage import gc_paused
from opdb.lookup.harvesting import harvests_of
from opdb.lookup.words import describe
from opdb.models import ModelRequest, load
from opdb.models.norms import calibrate_batch_norms
from opdb.records import Json, Workload
from opdb.tables import RATIO, SHARE, Column, Table

PROCESSES = 3

SECONDS = 420.0
"""Of all processes together, what making the models takes included."""

MAKING_SHARE = 0.5
"""Of a process's time; workloads that are not made by then are left out."""

DRAINED = 0.05
"""A pass waits for the host where the device is done with a block so soon after its issue."""

COUNTED = 3
"""Rounds, and passes, whose instructions are counted."""


@dataclass(frozen=True)
class Seen:
    """The blocks of one workload in one process, in their order: times in seconds.

    `calls_s` holds the mean time of each distinct call in each block, `containers_s` what a
    container took by each block (as `opdb bench` calibrates it), `passes_s` the mean time of a
    pass, `drains` what the device had left to do when a block of passes was issued, as a share of
    the block. Instructions are those of each call, and of a pass; none where they cannot be
    counted.
    """

    calls_s: list[list[float]] = field(default_factory=list)
    containers_s: list[float] = field(default_factory=list)
    passes_s: list[float] = field(default_factory=list)
    drains: list[float] = field(default_factory=list)
    calls_instructions: list[float] = field(default_factory=list)
    pass_instructions: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One workload: its pass in quiet time (seconds), and the ratios of the module's docstring."""

    model: str
    blocks: int
    pass_s: float
    quiet: float
    median: float
    control_quiet: float
    control_median: float
    slowdown: Slowdown
    instructions: float | None


ROWS: Table[Row] = Table(
    Column("model", lambda row: row.model, title="model"),
    Column("blocks", lambda row: row.blocks, title="blocks"),
    Column("pass_s", lambda row: row.pass_s, title="pass", unit="s"),
    Column("quiet", lambda row: row.quiet, title="sum / pass: quiet", unit=RATIO),
    Column("median", lambda row: row.median, title="medians", unit=RATIO),
    Column("control_quiet", lambda row: row.control_quiet, title="control: quiet", unit=RATIO),
    Column("control_median", lambda row: row.control_median, title="medians", unit=RATIO),
    Column(
        "slowdown",
        lambda row: asdict(row.slowdown),
        title="slower",
        text=lambda row: "{:.2f} ({:.2f} to {:.2f})".format(*astuple(row.slowdown)),
    ),
    Column("instructions", lambda row: row.instructions, title="instructions", unit=RATIO),
)


# one process


class Instructions:
    """Counts the instructions of this process, where the machine lets it."""

    def __init__(self) -> None:
        self._counter = getattr(torch._C, "_instruction_counter", None)
        if self._counter is not None:
            started = self._counter.start()
            if started < 0:
                self._counter = None
            else:
                self._counter.end(started)

    @property
    def known(self) -> bool:
        """Whether they can be counted."""
        return self._counter is not None

    def of(self, call: Callable[[], Any]) -> float:
        """Return how many a call takes, counting included."""
        assert self._counter is not None
        started = self._counter.start()
        call()
        return float(self._counter.end(started))


class Turns:
    """One workload made on a device: blocks of its operators and of its passes, in turn.

    Raises:
        OpdbError: the model cannot be made, or one of its calls cannot be built.
    """

    def __init__(self, request: ModelRequest, workload: Workload, device: str) -> None:
        of = Pass(workload)
        built = [built_on(call, device) for call in of.calls]
        if lacking := sum(each is None for each in built):
            raise UnsupportedError(f"{lacking} of {len(built)} calls cannot be built")
        loaded = load(request, device=device)
        calibrate_batch_norms(loaded)
        self._calls = [Timed.of(each) for each in built if each]
        self._pass = partial(loaded.module, *loaded.args, **loaded.kwargs)
        self._on_gpu = device != "cpu"
        self._order = of.order
        self._round = round_of([self._calls[place] for place in self._order], self._on_gpu)
        self.seen = Seen()
        for _ in range(3):
            took_s = [self._took_s(each) for each in (self._round, self._pass)]
        block_s = max(BLOCK_S, *took_s)
        self._rounds, self._passes = (math.ceil(block_s / s) for s in took_s)

    def take(self, container_s: float) -> None:
        """Make one block of each sort, in another order than the last time.

        A container took `container_s` just now.
        """
        self.seen.containers_s.append(container_s)
        blocks = [self._take_operators, self._take_passes]
        for block in blocks if len(self.seen.passes_s) % 2 else reversed(blocks):
            block()

    def count(self, instructions: Instructions) -> None:
        """Count the instructions of each call among the others, and of a pass."""
        counts: list[list[float]] = [[] for _ in self._calls]

        def counted(place: int) -> Timed:
            call = self._calls[place]

            def ready() -> Callable[[], Any]:
                issue = call.ready()
                return lambda: counts[place].append(instructions.of(issue))

            return Timed(ready, call.modes, call.state, call.waits)

        one_round = round_of([counted(place) for place in self._order], self._on_gpu)
        passes = []
        for _ in range(COUNTED):
            one_round()
            passes.append(instructions.of(self._pass))
        counting = instructions.of(lambda: None)
        self.seen.calls_instructions.extend(statistics.median(each) - counting for each in counts)
        self.seen.pass_instructions.append(statistics.median(passes) - counting)

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    def _took_s(self, call: Callable[[], Any]) -> float:
        """Return how long a call takes with what it leaves to the device, in seconds."""
        self._wait()
        start_s = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - start_s

    def _take_operators(self) -> None:
        self._wait()
        with gc_paused():  # as `opdb bench` does
            self._round()
            made = [self._round() for _ in range(self._rounds)]
        means = [statistics.fmean(times) for times in zip(*made, strict=True)]
        self.seen.calls_s.append([time_s for [time_s] in by_call([means], self._order)])

    def _take_passes(self) -> None:
        self._wait()
        self._pass()
        start_s = time.perf_counter()
        for _ in range(self._passes):
            self._pass()
        issued_s = time.perf_counter()
        self._wait()
        took_s = issued_s - start_s
        self.seen.passes_s.append(took_s / self._passes)
        self.seen.drains.append((time.perf_counter() - issued_s) / took_s)


Asked = Mapping[str, tuple[ModelRequest, Workload]]
"""Workloads by the name that is printed, with what they were asked for by."""


def in_one_process(asked: Asked, device: str, seconds: float) -> dict[str, Seen | str]:
    """Return the blocks of each workload, or why there are none, seen for so many seconds."""
    began_s = time.monotonic()
    found: dict[str, Seen | str] = {}
    made: list[Turns] = []
    with torch.no_grad():
        for name, (request, workload) in asked.items():
            if time.monotonic() - began_s > MAKING_SHARE * seconds:
                found[name] = "the time for making models was up"
                continue
            try:
                made.append(Turns(request, workload, device))
                found[name] = made[-1].seen
            except (OpdbError, RuntimeError) as error:
                found[name] = str(error)
        instructions = Instructions()
        if instructions.known:
            for turns in made:
                turns.count(instructions)
        gc.collect()
        gc.freeze()
        while made and time.monotonic() - began_s < seconds:
            container_s = container_time_s()
            for turns in made:
                turns.take(container_s)
    return found


# all of them


def harvested(files: Iterable[Path]) -> tuple[Asked, dict[str, str]]:
    """Return the workloads of files at batch 1 in float32, and why there are none of others."""
    requests = plain_requests(files)
    asked, left = {}, {}
    around: Known = {}
    for request, found, _ in harvests_of(requests, lambda request: None, processes=None):
        name = f"{request.name} {describe(request)}"
        if isinstance(found, OpdbError):
            left[name] = str(found)
        else:
            asked[name] = request, with_around(request, found, around).workload
    return asked, left


def row_of(name: str, workload: Workload, seen: Sequence[Seen]) -> Row | str:
    """Hold the operators of a workload against its passes; the reason where they cannot be."""
    passes_s = [s for each in seen for s in each.passes_s]
    calls_s = [block for each in seen for block in each.calls_s]
    containers_s = [s for each in seen for s in each.containers_s]
    if len(passes_s) < LEAST_BLOCKS:
        return f"{len(passes_s)} blocks, fewer than {LEAST_BLOCKS}"
    drain = statistics.median(drain for each in seen for drain in each.drains)
    if drain > DRAINED:
        return f"it does not wait for the host: {100 * drain:.0f} % of a block is left to do"
    medians_s = [statistics.median(times) for times in zip(*calls_s, strict=True)]
    median_s = statistics.median(passes_s)
    quiet_s, container_s = quiet_time_s(passes_s), quiet_time_s(containers_s)
    one, other = passes_s[::2], passes_s[1::2]
    slowdown = host_slowdown(passes_s)
    assert slowdown is not None
    counted = [each for each in seen if each.pass_instructions]
    return Row(
        model=name,
        blocks=len(passes_s),
        pass_s=quiet_s,
        quiet=sum_of(workload, quiet_times_s(calls_s), container_s) / quiet_s,
        median=sum_of(workload, medians_s, statistics.median(containers_s)) / median_s,
        control_quiet=quiet_time_s(one) / quiet_time_s(other),
        control_median=statistics.median(one) / statistics.median(other),
        slowdown=slowdown,
        instructions=statistics.median(
            sum_of(workload, each.calls_instructions, 0.0) / each.pass_instructions[0]
            for each in counted
        )
        if counted
        else None,
    )


def sum_of(workload: Workload, calls: Sequence[float], container: float) -> float:
    """Add up a pass from what each of its distinct calls and a container takes."""
    containers = workload.containers_worth * container
    return math.fsum([containers, *map(mul, Pass(workload).times, calls)])


@dataclass(frozen=True)
class Errors:
    """How far some ratio is from 1 over all workloads, as a share."""

    ratio: str
    median: float
    percentile_95: float
    largest: float
    bias: float


ERRORS: Table[Errors] = Table(
    Column("ratio", lambda row: row.ratio, title="distance from 1"),
    Column("median", lambda row: row.median, title="median", unit=SHARE),
    Column("percentile_95", lambda row: row.percentile_95, title="95th percentile", unit=SHARE),
    Column("largest", lambda row: row.largest, title="largest", unit=SHARE),
    Column("bias", lambda row: row.bias, title="median with its sign", unit=SHARE),
)

RATIOS = ("quiet", "median", "control_quiet", "control_median", "instructions")


def errors_of(rows: Sequence[Row]) -> list[Errors]:
    """Sum up each ratio over all workloads that have it."""
    found = []
    for ratio in RATIOS:
        signed = [value - 1 for row in rows if (value := getattr(row, ratio)) is not None]
        if len(signed) < 2:
            continue
        errors = sorted(map(abs, signed))
        cut = statistics.quantiles(errors, n=20, method="inclusive")[-1]
        middle, bias = statistics.median(errors), statistics.median(signed)
        found.append(Errors(ratio, middle, cut, errors[-1], bias))
    return found


def compared(
    asked: Asked, processes: Sequence[Mapping[str, Seen | str]]
) -> tuple[list[Row], dict[str, str]]:
    """Return a row for each workload, and why others have none."""
    rows, left = [], {}
    for name, (_, workload) in asked.items():
        of_name = [found[name] for found in processes if name in found]
        seen = [each for each in of_name if isinstance(each, Seen)]
        reasons = [each for each in of_name if isinstance(each, str)]
        found = reasons[0] if reasons else row_of(name, workload, seen)
        if isinstance(found, Row):
            rows.append(found)
        else:
            left[name] = found
    return rows, left


def document(
    asked: Asked,
    rows: Sequence[Row],
    left: Mapping[str, str],
    processes: Sequence[Mapping[str, Seen | str]],
) -> Json:
    """Return the rows and everything they rest on: times in ns, calls with how often a pass."""
    passes = {name: Pass(workload) for name, (_, workload) in asked.items()}
    return {
        "rows": [asdict(row) for row in rows],
        "errors": [asdict(errors) for errors in errors_of(rows)],
        "left_out": dict(left),
        "calls": {
            name: [
                [call.configuration.kind, call.form, times]
                for call, times in zip(of.calls, of.times, strict=True)
            ]
            for name, of in passes.items()
        },
        "containers": {name: of.workload.containers for name, of in passes.items()},
        "around": {name: of.workload.around for name, of in passes.items()},
        "processes": [
            {
                name: {
                    "calls_ns": [[round(s * 1e9) for s in block] for block in seen.calls_s],
                    "containers_ns": [round(s * 1e9) for s in seen.containers_s],
                    "passes_ns": [round(s * 1e9) for s in seen.passes_s],
                    "drains": [round(drain, 4) for drain in seen.drains],
                    "calls_instructions": seen.calls_instructions,
                    "pass_instructions": seen.pass_instructions,
                }
                for name, seen in found.items()
                if isinstance(seen, Seen)
            }
            for found in processes
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="summary files")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all processes together")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write rows and all blocks")
    given = parser.parse_args(arguments)
    began_s = time.monotonic()
    processes: list[dict[str, Seen | str]] = []
    try:
        asked, unharvested = harvested(given.files)
        now_asked = asked
        for number in range(given.processes):
            rest_s = given.seconds - (time.monotonic() - began_s)
            share_s = max(rest_s / (given.processes - number), 0.0)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                made = pool.submit(in_one_process, now_asked, given.device, share_s).result()
            processes.append(made)
            now_asked = {n: each for n, each in asked.items() if isinstance(made.get(n), Seen)}
            print(f"process {number + 1}: {len(now_asked)} workloads", flush=True)
            rows, left = compared(asked, processes)
            left |= unharvested
            if given.json is not None:
                given.json.write_text(json.dumps(document(asked, rows, left, processes)) + "\n")
    except OpdbError as error:
        print(f"quiet_host: {error}", file=sys.stderr)
        return error.exit_status
    print(*ROWS.lines(rows), "", *ERRORS.lines(errors_of(rows)), sep="\n")
    for name, why in left.items():
        print(f"left out: {name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
