"""One digest of all that a harvest depends on: with the same digest, it finds the same calls."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import torch

from opdb.models import checked
from opdb.spec import ModelSpec, is_import_path

_OWN = Path(__file__).parents[1]
_INSTALLED = {"site-packages", "dist-packages"}

_RUN = ("__main__", "__mp_main__")
"""Names of the program that asks: the second is the same module, where multiprocessing was
imported."""

_READ = (
    *("ACCELERATE_", "AOT", "ATEN_", "CUTLASS", "ENABLE_", "FLASH_", "HF_", "INDUCTOR", "PYTORCH"),
    *("TENSORIFY_", "TORCH", "TRANSFORMERS_", "TRITON_", "USE_", "XLA_"),
)
"""Prefixes of the environment variables that configure torch, transformers and Triton."""

_NOT_READ = ("CACHE", "TOKEN")
"""Parts of the names of variables that say where files are, or who asks; torch sets some."""


def fingerprint(request: ModelSpec) -> str | None:
    """Return the SHA-256 (hex) of a request and of the code that would be harvested, as it is here.

    The code is Python, opdb, and every distribution that is installed, by its version. Environment
    variables that configure it, and whether there is a GPU, count too. None where that is not all:
    a model from an import path may change at any time, and so may modules that were imported from
    elsewhere than where packages are installed, such as those of a checkout.

    Raises:
        InputError: the request is not valid.
    """
    valid = checked(request)
    if is_import_path(valid.name) or not _is_installed():
        return None
    variables = sorted(item for item in os.environ.items() if _is_read(item[0]))
    parts = (valid, _code(), variables, torch.cuda.is_available())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _is_read(variable: str) -> bool:
    return variable.startswith(_READ) and not any(part in variable for part in _NOT_READ)


def _is_installed() -> bool:
    """Whether every module that was imported until now is Python's, opdb's, or was installed."""
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(_OWN)}
    folders = tuple(root + os.sep for root in roots)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if name in _RUN or not isinstance(file, str) or not file.endswith((".py", ".pyc")):
            continue
        if not (file.startswith(folders) or _INSTALLED.intersection(Path(file).parts)):
            return False
    return True


@cache
def _code() -> str:
    """Return what identifies the code there is: opdb's text, the version of all else."""
    own = b"".join(file.read_bytes() for file in sorted(_OWN.rglob("*.py")))
    installed = sorted((each.name, each.version) for each in distributions())
    return repr((hashlib.sha256(own).hexdigest(), sys.version, platform.machine(), installed))
