"""What runs in a test's worker: the worker itself, its visits and runs as short as can be."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch

from opdb import processes, workers
from opdb.bench import calibrate, model, visit
from opdb.store import Store
from opdb.studies.sweep import measuring as sweep
from tests import warm


def start_quickly() -> None:
    """Let worker processes begin with torch imported: these have no CUDA to keep apart."""
    warm.load_before_forks("tests.workers.short")
    processes.START = "forkserver"


def serve(*given: Any, token: Path | None = None) -> None:
    """Work; the first to save a visit that finds the token takes it, and dies by kill -9."""
    shorten()
    if token is not None:
        saved = Store.save_visit
        Store.save_visit = after(saved, token, signal.SIGKILL)  # type: ignore[method-assign]
    workers.serve(*given)


def shorten() -> None:
    """Make visits and runs of this process as short as can be."""
    torch.set_num_threads(1)
    visit.SETTLE_S, visit.WINDOW_S = 0.005, 0.03
    model.SETTLE_S, model.WINDOW_S, model.MAX_REDONE, model.HOSTS_REDONE = 0.005, 0.03, 0, 0
    sweep.FIRST_SETTLE_S, sweep.SETTLE_S, sweep.WINDOW_S = 0.005, 0.005, 0.03
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5


def after(save: Any, token: Path, stop: int) -> Any:
    """Return a way to save that sends the process a signal afterwards, if it finds the token."""

    def saved(store: Store, *given: Any) -> None:
        save(store, *given)
        if token.exists():
            token.unlink()
            os.kill(os.getpid(), stop)

    return saved
