"""How tests start Python processes."""

from __future__ import annotations

import multiprocessing
import sys

LOADED = (
    *("torch", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.cpp"),
    *("torch._inductor.lowering", "torch._inductor.scheduler", "torchvision", "opdb.cli"),
    *("opdb.harvest", "opdb.bench.run", "opdb.bench.model", "opdb.bench.modes", "opdb.store"),
)
"""What takes long to import."""


def command(*arguments: str) -> list[str]:
    """Return a command line that runs `python *arguments`."""
    return [sys.executable, *arguments]


def load_before_forks(*modules: str) -> None:
    """Let multiprocessing's forkserver of this process load these modules, if it is to start."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([*LOADED, *modules])
