"""Nsight Compute's command line: where it is, what it knows here, and a program run under it."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opdb.errors import CannotMeasureError

ELSEWHERE = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Where it is installed without being put on PATH."""

INSTALL = "install Nsight Compute (apt install nsight-compute, or with the CUDA toolkit)"
PERMISSION = (
    "write options nvidia NVreg_RestrictProfilingToAdminUsers=0 to a file in /etc/modprobe.d and "
    "reboot, or run as root (a container with --cap-add=SYS_ADMIN)"
)

_BASE_NAME = re.compile(r"[A-Za-z_]\w*__\w+")
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)


def elsewhere(patterns: Sequence[str] = ELSEWHERE) -> str | None:
    """Return the newest ncu that is installed and not on PATH; None where there is none."""
    found = [str(path) for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))]
    return max(found, default=None)


@dataclass(frozen=True)
class Ncu:
    """An ncu that answers: its path and version."""

    path: str
    version: str

    @property
    def name(self) -> str:
        """The tool as it is stored with what it counted."""
        return f"ncu {self.version}"

    def known_metrics(self) -> set[str]:
        """Return the metrics that it knows on this machine's GPUs, without their suffixes.

        Raises:
            CannotMeasureError: it finds no GPU.
        """
        output = self._run(["--query-metrics", "--csv"])
        rows = csv.reader(line for line in output.splitlines() if not line.startswith("=="))
        found = {row[0] for row in rows if row and _BASE_NAME.fullmatch(row[0])}
        if not found:
            raise CannotMeasureError(f"{self.path} --query-metrics names no metric: {_why(output)}")
        return found

    def profile(self, program: Sequence[str], metrics: Sequence[str], report: Path) -> str:
        """Run a program under the profiler, keep the report, and return its raw page as CSV.

        What the program runs between cudaProfilerStart and Stop is profiled, kernel by kernel, the
        clocks left alone and the caches emptied before each.

        Raises:
            CannotMeasureError: the counters may not be read, or nothing was profiled.
        """
        options = [
            *("--clock-control", "none", "--cache-control", "all"),
            *("--profile-from-start", "off", "--nvtx"),
            *("--metrics", ",".join(metrics)),
            *("--force-overwrite", "--export", str(report).replace("%", "%%")),
        ]
        output = self._run([*options, *program])
        if not report.exists():
            raise CannotMeasureError(f"ncu wrote no report: {_why(output)}")
        return self._run(["--import", str(report), "--csv", "--page", "raw"])

    def _run(self, arguments: Sequence[str]) -> str:
        """Run it and return all that it and its program print.

        Raises:
            CannotMeasureError: it fails; the message says why and what to do.
        """
        try:
            done = subprocess.run(
                [self.path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise CannotMeasureError(f"{self.path} does not run: {error.strerror}") from error
        if "ERR_NVGPUCTRPERM" in done.stdout:
            raise CannotMeasureError(
                f"this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): "
                f"{PERMISSION}"
            )
        if done.returncode != 0:
            raise CannotMeasureError(f"ncu failed: {_why(done.stdout)}")
        return done.stdout


def find() -> Ncu:
    """Return the ncu on PATH.

    Raises:
        CannotMeasureError: there is none, or it does not run.
    """
    path = shutil.which("ncu")
    if path is None:
        there = elsewhere()
        advice = f"put {Path(there).parent} on PATH" if there else f"{INSTALL} and put it on PATH"
        raise CannotMeasureError(f"no ncu on PATH to read hardware counters with: {advice}")
    output = Ncu(path, "")._run(["--version"])
    version = _VERSION.search(output)
    return Ncu(path, version[1] if version else "of unknown version")


def _why(output: str) -> str:
    """Return what went wrong in one line: the program's last word, and the profiler's error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("==ERROR==", "==WARNING=="))]
    errors = [line.partition("== ")[2] for line in told]
    said = [line for line in lines if not line.startswith("==")][-1:]
    return "; ".join([*errors[:2], *said]) or "it says nothing"
