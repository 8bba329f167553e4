"""The program that Nsight Compute runs: each call of a job once, in a range that names it.

    python -m opdb.bench.profiled JOB

The job is a JSON file; what came of its calls is written into the file that it names. What goes
before a call (making its tensors, first calls that set libraries up) is not profiled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from opdb.bench.replay import write_anew
from opdb.bench.visit import REFUSALS, issuing, refusal
from opdb.counters.report import board_range, call_range
from opdb.errors import UnsupportedError
from opdb.operators import build
from opdb.records import Board, Configuration

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

    def write(self, path: Path) -> None:
        """Write the job into a file."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> ProfilingJob:
        """Read a job back."""
        return cls(**json.loads(path.read_text()))


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
    """Run the job that the command line names."""
    job = ProfilingJob.read(Path(sys.argv[1]))
    if job.torch_device.startswith("cuda"):
        torch.cuda.set_device(job.torch_device)
    Path(job.result).write_text(json.dumps(run(job)))


if __name__ == "__main__":
    main()
