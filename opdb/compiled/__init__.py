"""What torch.compile makes of a model; here the tools that it needs: compilers, headers, Triton.

This file imports no torch: the doctor looks at the tools, too."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from opdb.errors import CannotMeasureError
from opdb.models.catalogue import version_of

INSTALL = "on Debian and Ubuntu, sudo apt install g++ python3-dev"
INSTALL_TRITON = "pip install triton"


# For each device the language that kernels or their launchers are compiled from, the variable that
# names its compiler, and what is looked for without it.
_COMPILERS = {"cpu": ("C++", "CXX", ("g++",)), "cuda": ("C", "CC", ("clang", "gcc"))}


def lacking(device: str) -> tuple[list[str], list[str]]:
    """Return what is missing to compile for a device ("cpu", "cuda"), and what to do, in words."""
    language, variable, usual = _COMPILERS[device]
    wanted = os.environ.get(variable)
    programs = list(usual) if wanted is None else wanted.split()[:1]
    found = any(map(shutil.which, programs))
    lacks = [] if found else [f"no {language} compiler ({wanted or ' or '.join(usual)}) on PATH"]
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        lacks.append("no Python.h")
    advice = [INSTALL] if lacks else []
    if device != "cpu" and version_of("triton") is None:
        lacks.append("no Triton")
        advice.append(INSTALL_TRITON)
    return lacks, advice


# Environment variables that keep torch from compiling or tracing anything, and it does not say so.

# With one of its switches a part of torch returns the model as it is.
SWITCHES: Mapping[str, Sequence[str]] = {
    "torch.compile": ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1"),
    "torch.jit": ("PYTORCH_JIT=0",),
}


def check_works(part: str) -> None:
    """Check that a part of torch is not switched off.

    Raises:
        CannotMeasureError: the environment keeps it from doing anything.
    """
    for switch in SWITCHES[part]:
        name, _, value = switch.partition("=")
        if os.environ.get(name) == value:
            raise CannotMeasureError(
                f"{switch} in the environment keeps {part} from doing anything; unset it"
            )
