"""Fused groups compiled ahead of their visits, several at once: a GPU would wait seconds for each.

What a process compiles lies in the caches that inductor and Triton keep on disk, where the bench
finds it. Nothing is run ahead: kernels that are chosen by timing them are timed by the bench, alone
on the board.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from opdb.records import Configuration

LEAST_GROUPS = 8
"""For fewer it does not pay to start processes, each of which imports torch."""

GROUPS_A_PROCESS = 4
CPUS_A_PROCESS = 2
MOST_PROCESSES = 16

ONE_THREAD = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Or each process would start a pool of its own."""


def processes_for(groups: int) -> int:
    """Return how many processes compile so many groups on this machine; 0 where it does not pay."""
    if groups < LEAST_GROUPS:
        return 0
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(MOST_PROCESSES, cpus // CPUS_A_PROCESS, groups // GROUPS_A_PROCESS)
    return wanted if wanted > 1 else 0


def compile_ahead(
    groups: Sequence[Configuration], device: str, processes: int, spent: Callable[[], bool]
) -> None:
    """Compile fused groups for a device, in so many processes, which end before this returns.

    They are ended where the time is `spent`. What fails fails again when it is visited, and is told
    then.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(processes):
            started.append(_started(groups[number::processes], device))
        while not spent() and any(process.poll() is None for process in started):
            time.sleep(0.05)
    finally:
        for process in started:
            process.kill()
            process.wait()


def _started(groups: Sequence[Configuration], device: str) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as lines:
        lines.writelines(f"{group.json}\n".encode() for group in groups)
        lines.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "opdb.bench.ahead", device],
            stdin=lines,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is the bench's, which ends them
        )


def _compile_lines(device: str) -> None:
    import torch

    from opdb.operators import build

    for line in sys.stdin:
        with suppress(Exception):  # whatever it is, the visit meets it again and says so
            build(Configuration.from_json(line.rstrip("\n")), device=device)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    _compile_lines(sys.argv[1])
