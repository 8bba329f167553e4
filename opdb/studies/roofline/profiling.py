"""Hardware counters of single calls: programs under Nsight Compute, profiles stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from opdb.bench.replay import write_anew
from opdb.bench.session import Platform, now
from opdb.bench.visit import REFUSALS, issuing, refusal
from opdb.errors import CannotMeasureError, UnsupportedError
from opdb.operators import build
from opdb.records import Configuration
from opdb.store import Store
from opdb.studies.roofline.counters import (
    Definition,
    Ncu,
    board_range,
    call_range,
    metrics_in,
    read_report,
)

AT_ONCE = 64
"""Calls that one program makes: what it saw is stored before the next one begins."""

ENDING = ".ncu-rep"
"""What Nsight Compute's reports end in; it adds it where it is missing."""


def profile_calls(
    store: Store,
    platform: Platform,
    tool: Ncu,
    definition: Definition,
    configurations: Sequence[Configuration],
    keep: Path | None = None,
    *,
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, str]:
    """Run calls under the profiler, some at a time, and store what it saw of each.

    Its report is kept in the file `keep`, where one is given; those after the first are numbered.
    `done` is called with how many more were made. Returns why calls have no profile, by key.
    """
    missing: dict[str, str] = {}
    store.save_board(platform.device, platform.board)
    store.save_configurations(configurations)
    for number, start in enumerate(range(0, len(configurations), AT_ONCE), start=1):
        some = configurations[start : start + AT_ONCE]
        with TemporaryDirectory(prefix="opdb-") as folder:
            report = Path(folder, f"report{ENDING}")
            if keep is not None:
                stem = keep.name.removesuffix(ENDING) + (f"-{number}" if number > 1 else "")
                report = keep.with_name(stem + ENDING)
            missing |= _profile(store, platform, tool, definition, some, Path(folder), report)
        done(len(some))
    return missing


def _profile(
    store: Store,
    platform: Platform,
    tool: Ncu,
    definition: Definition,
    configurations: Sequence[Configuration],
    folder: Path,
    report: Path,
) -> dict[str, str]:
    path, result, begun_at = folder / "job.json", folder / "result.json", now()
    job = {
        "device": platform.torch_device,
        "board": board_range(platform.board, begun_at),
        "configurations": [c.json for c in configurations],
        "result": str(result),
    }
    path.write_text(json.dumps(job))
    program = [sys.executable, "-m", "opdb.studies.roofline.profiling", str(path)]
    try:
        text = tool.profile(program, metrics_in(definition), report)
    except CannotMeasureError:
        refused = json.loads(result.read_text()) if result.exists() else {}
        if not refused or None in refused.values():
            raise
        return dict(refused)  # no call could be made: there was nothing to profile
    if not result.exists():
        raise CannotMeasureError("the program under ncu ended before its last call")
    reasons: dict[str, str | None] = json.loads(result.read_text())
    profiles = read_report(text, tool.name).profiles(
        [c for c in configurations if reasons[c.key] is None],
        platform.board,
        definition,
        environment={**platform.environment, "ncu": tool.version},
        measured_at=begun_at,
    )
    store.save_profiles(profiles)
    seen = {profile.configuration for profile in profiles}
    return {
        key: reason or "it launched no kernel" for key, reason in reasons.items() if key not in seen
    }


# The program that Nsight Compute runs: each call of a job once, in a range that names it.
#
#     python -m opdb.studies.roofline.profiling JOB
#
# The job is a JSON file; what came of its calls is written into the file that it names. What goes
# before a call (making its tensors, first calls that set libraries up) is not profiled.

WARM_UP_CALLS = 2


def run(job: Mapping[str, Any]) -> dict[str, str | None]:
    """Make a job's calls; return by key why one could not be made, None where it was."""
    reasons: dict[str, str | None] = {}
    for text in job["configurations"]:
        configuration = Configuration.from_json(text)
        try:
            _call(configuration, job["device"], job["board"])
            reasons[configuration.key] = None
        except UnsupportedError as error:
            reasons[configuration.key] = f"unsupported: {error}"
        except REFUSALS as error:
            reasons[configuration.key] = ": ".join(refusal(error))
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    return reasons


def _call(configuration: Configuration, device: str, board: str) -> None:
    call = build(configuration, device=device)
    pristine = [call.inputs[i].clone() for i in call.mutated]
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
    job = json.loads(Path(sys.argv[1]).read_text())
    if job["device"].startswith("cuda"):
        torch.cuda.set_device(job["device"])
    Path(job["result"]).write_text(json.dumps(run(job)))


if __name__ == "__main__":
    main()
