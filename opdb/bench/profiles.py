"""Hardware counters of single calls: programs under Nsight Compute, profiles stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from opdb.bench.replay import write_anew
from opdb.bench.session import Platform, now
from opdb.bench.visit import REFUSALS, issuing, refusal
from opdb.errors import CannotMeasureError, UnsupportedError
from opdb.meters.ncu import Definition, Ncu, board_range, call_range, metrics_in, read_report
from opdb.operators import build
from opdb.records import Board, Configuration
from opdb.store import Store

AT_ONCE = 64
"""Calls that one program makes: what it saw is stored before the next one begins."""

ENDING = ".ncu-rep"
"""What Nsight Compute's reports end in; it adds it where it is missing."""


@dataclass(frozen=True)
class Lens:
    """How calls are profiled: the tool, the metrics, and where to keep its reports."""

    tool: Ncu
    definition: Definition
    keep: Path | None = None

    def report(self, number: int, folder: Path) -> Path:
        """Return the file of a report: the one to keep, those after the first numbered."""
        if self.keep is None:
            return folder / f"report-{number}{ENDING}"
        stem = self.keep.name.removesuffix(ENDING)
        return self.keep.with_name(stem + (f"-{number}" if number > 1 else "") + ENDING)


@dataclass
class ProfilingResult:
    """What was stored, the reports that were kept, and why calls have no profile, by key."""

    profiles: int = 0
    reports: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def profile_calls(
    store: Store,
    platform: Platform,
    lens: Lens,
    configurations: Sequence[Configuration],
    *,
    done: Callable[[int], None] = lambda _: None,
) -> ProfilingResult:
    """Run calls under the profiler, some at a time, and store what it saw of each.

    `done` is called with how many more were made.
    """
    outcome = ProfilingResult()
    store.save_board(platform.device, platform.board)
    store.save_configurations(configurations)
    for number, start in enumerate(range(0, len(configurations), AT_ONCE), start=1):
        some = configurations[start : start + AT_ONCE]
        with TemporaryDirectory(prefix="opdb-") as folder:
            _profile(store, platform, lens, some, (number, Path(folder)), outcome)
        done(len(some))
    return outcome


def _profile(
    store: Store,
    platform: Platform,
    lens: Lens,
    configurations: Sequence[Configuration],
    place: tuple[int, Path],
    outcome: ProfilingResult,
) -> None:
    number, folder = place
    report, result = lens.report(number, folder), folder / "result.json"
    job = ProfilingJob(
        platform.torch_device,
        platform.board.uuid,
        platform.board.device,
        now(),
        [c.json for c in configurations],
        str(result),
    )
    path = folder / "job.json"
    path.write_text(json.dumps(asdict(job)))
    program = [sys.executable, "-m", "opdb.bench.profiles", str(path)]
    try:
        text = lens.tool.profile(program, metrics_in(lens.definition), report)
    except CannotMeasureError:
        reasons = _reasons(result)
        if not reasons or None in reasons.values():
            raise
        # no call could be made: there was nothing to profile
        outcome.missing |= {key: str(reason) for key, reason in reasons.items()}
        return
    reasons = _reasons(result)
    if len(reasons) < len(configurations):
        raise CannotMeasureError("the program under ncu ended before its last call")
    read = read_report(text, lens.tool.name)
    made = [c for c in configurations if reasons[c.key] is None]
    profiles = read.profiles(
        made,
        platform.board,
        lens.definition,
        environment={**platform.environment, "ncu": lens.tool.version},
        measured_at=job.begun_at,
    )
    store.save_profiles(profiles)
    outcome.profiles += len(profiles)
    outcome.reports += [report] if lens.keep is not None else []
    outcome.missing |= {key: reason for key, reason in reasons.items() if reason is not None}
    seen = {profile.configuration for profile in profiles}
    outcome.missing |= {c.key: "it launched no kernel" for c in made if c.key not in seen}


def _reasons(result: Path) -> dict[str, str | None]:
    """Return what came of a program's calls; nothing where it did not end."""
    if not result.exists():
        return {}
    reasons: dict[str, str | None] = json.loads(result.read_text())
    return reasons


# The program that Nsight Compute runs: each call of a job once, in a range that names it.
#
#     python -m opdb.bench.profiles JOB
#
# The job is a JSON file; what came of its calls is written into the file that it names. What goes
# before a call (making its tensors, first calls that set libraries up) is not profiled.

WARM_UP_CALLS = 2


@dataclass(frozen=True)
class ProfilingJob:
    """Calls to make on a device (torch's name of it): configurations as JSON texts.

    `result` is the file for what came of them: by key, null or why a call could not be made.
    """

    torch_device: str
    board: str
    device: str
    begun_at: str
    configurations: list[str]
    result: str


def run(job: ProfilingJob) -> dict[str, str | None]:
    """Make a job's calls; return by key why one could not be made, None where it was."""
    reasons: dict[str, str | None] = {}
    for text in job.configurations:
        configuration = Configuration.from_json(text)
        try:
            _call(configuration, job)
            reasons[configuration.key] = None
        except UnsupportedError as error:
            reasons[configuration.key] = f"unsupported: {error}"
        except REFUSALS as error:
            reasons[configuration.key] = ": ".join(refusal(error))
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    return reasons


def _call(configuration: Configuration, job: ProfilingJob) -> None:
    call = build(configuration, device=job.torch_device)
    pristine = [call.inputs[i].clone() for i in call.mutated]
    board = board_range(Board(job.board, job.device), job.begun_at)
    # ranges are a thread's own: autograd must launch from this one, not from threads of its own
    with issuing(call), torch.autograd.set_multithreading_enabled(False):
        for _ in range(WARM_UP_CALLS):
            call()
        for index, values in zip(call.mutated, pristine, strict=True):
            write_anew(call.inputs[index], values)
        with _profiled(board, call_range(configuration.key)):
            call()


@contextmanager
def _profiled(*ranges: str) -> Iterator[None]:
    """Let the profiler see what runs in the block, in NVTX ranges; elsewhere nothing is special."""
    if not torch.cuda.is_initialized():
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name in ranges:
        torch.cuda.nvtx.range_push(name)
    try:
        yield
        torch.cuda.synchronize()
    finally:
        for _ in ranges:
            torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.stop()


def main() -> None:
    job = ProfilingJob(**json.loads(Path(sys.argv[1]).read_text()))
    if job.torch_device.startswith("cuda"):
        torch.cuda.set_device(job.torch_device)
    Path(job.result).write_text(json.dumps(run(job)))


if __name__ == "__main__":
    main()
