"""What torch.compile makes of a model; here the tools that it needs: compilers, headers, Triton.

This file imports no torch: the doctor looks at the tools, too."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opdb.errors import CannotMeasureError

ANSWERS_WITHIN_S = 10.0
"""Time limit for a compiler to print its version."""

INSTALL = "on Debian and Ubuntu, sudo apt install g++ python3-dev"
INSTALL_TRITON = "pip install triton"

SEVERAL_WORDS = (2, 15)
"""A version of torch that takes a launcher or arguments with a C++ compiler; 2.11 does not."""


@dataclass(frozen=True)
class Toolchain:
    """The compilers' paths, None where none works, and the version of Triton."""

    cxx: str | None = None
    cxx_wanted: str = "g++"
    cc: str | None = None
    cc_wanted: str | None = None
    python_header: bool = True
    triton: str | None = None

    @property
    def no_cxx(self) -> list[str]:
        """The message that there is no C++ compiler, which inductor's CPU kernels need."""
        return [f"no C++ compiler ({self.cxx_wanted}) that works"] if self.cxx is None else []

    @property
    def no_cc(self) -> list[str]:
        """The message that there is no C compiler, with which Triton compiles its launchers."""
        wanted = f" ({self.cc_wanted})" if self.cc_wanted else ""
        return [f"no C compiler{wanted} that works"] if self.cc is None else []

    @property
    def no_header(self) -> list[str]:
        """The message that Python's headers are missing, which both of them need."""
        return [] if self.python_header else ["no Python.h"]


def look() -> Toolchain:
    wanted = os.environ.get("CXX", "g++")
    c_wanted = os.environ.get("CC")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return Toolchain(
        cxx=_working(*_command(wanted)),
        cxx_wanted=wanted,
        cc=_working("clang") or _working("gcc") if c_wanted is None else _working(c_wanted),
        cc_wanted=c_wanted,
        python_header=header.exists(),
        triton=version("triton") or version("pytorch-triton"),
    )


def lacking(device: str) -> tuple[list[str], list[str]]:
    """Return what is missing to compile for a device ("cpu", "cuda"), and what to do, in words."""
    found = look()
    on_gpu = device != "cpu"
    lacks = [*(found.no_cc if on_gpu else found.no_cxx), *found.no_header]
    advice = [INSTALL] if lacks else []
    if on_gpu and found.triton is None:
        lacks.append("no Triton")
        advice.append(INSTALL_TRITON)
    return lacks, advice


def _command(wanted: str) -> list[str]:
    """Return the words of the command that CXX names, as torch takes them; none of no command."""
    numbers = re.match(r"(\d+)\.(\d+)", version("torch") or "")
    if numbers is None or (int(numbers[1]), int(numbers[2])) < SEVERAL_WORDS:
        return [wanted]
    try:
        return shlex.split(wanted)
    except ValueError:  # a quotation without an end
        return []


def _working(name: str = "", *arguments: str) -> str | None:
    """Return the compiler of this name on PATH; None where there is none, or it does not start."""
    path = shutil.which(name)
    if path is None:
        return None
    command = [path, *arguments]
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, timeout=ANSWERS_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return " ".join(command) if done.returncode == 0 else None


def version(distribution: str) -> str | None:
    """Return which version of a distribution is installed; None where there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


# Environment variables that keep torch from compiling or tracing anything, and it does not say so.

SWITCHES: Mapping[str, Sequence[str]] = {
    "torch.compile": ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1"),
    "torch.jit": ("PYTORCH_JIT=0",),
}
"""With one of its switches a part of torch returns the model as it is."""


def switched_off(part: str) -> list[str]:
    pairs = (switch.split("=") for switch in SWITCHES[part])
    return [f"{name}={value}" for name, value in pairs if os.environ.get(name) == value]


def check_works(part: str) -> None:
    """Check that a part of torch is not switched off.

    Raises:
        CannotMeasureError: the environment keeps it from doing anything.
    """
    for switch in switched_off(part):
        raise CannotMeasureError(
            f"{switch} in the environment keeps {part} from doing anything; unset it"
        )
