"""What runs in a test's worker: the worker itself, its visits and runs as short as can be."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from opdb.bench import calibrate, model, rounds, run, visit
from opdb.cluster import crew, worker
from opdb.cluster.devices import WorkerDevice
from opdb.store import Store
from opdb.sweep import measuring as sweep
from tests import warm


def start_quickly() -> None:
    """Let worker processes begin with torch imported: these have no CUDA to keep apart."""
    warm.load_before_forks("tests.cluster.short")
    crew.START = "forkserver"


def serve(place: WorkerDevice, url: str, pipe: worker.Pipe, token: Path | None = None) -> None:
    """Work; the first to save a visit that finds the token takes it, and dies by kill -9."""
    shorten()
    if token is not None:
        Store.save_visit = fatal(Store.save_visit, token)  # type: ignore[method-assign]
    worker.serve(place, url, pipe)


def serve_until_a_run(place: WorkerDevice, url: str, pipe: worker.Pipe, token: Path) -> None:
    """Work; the first that finds the token as it saves a run takes it and dies, the run unsaved."""
    shorten()
    save = Store.save_model_run

    def saved(store: Store, *given: Any) -> None:
        if token.exists():
            token.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        save(store, *given)

    Store.save_model_run = saved  # type: ignore[method-assign, assignment]
    worker.serve(place, url, pipe)


def serve_until_it_hangs(place: WorkerDevice, url: str, pipe: worker.Pipe, token: Path) -> None:
    """Work; the first that finds the token as it saves a visit or a run takes it and stands still.

    What it was about to save is not saved.
    """
    shorten()
    for name in ("save_visit", "save_model_run"):
        setattr(Store, name, hanging(getattr(Store, name), token))
    worker.serve(place, url, pipe)


def hanging(save: Any, token: Path) -> Any:
    """Return a way to save that stops the process first, if it finds the token."""

    def saved(store: Store, *given: Any) -> None:
        if token.exists():
            token.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        save(store, *given)

    return saved


HELD_S = 0.3
"""How long a worker that notes its turn keeps the host: others given it would begin meanwhile."""


def serve_and_note(place: WorkerDevice, url: str, pipe: worker.Pipe, notes: Path) -> None:
    """Work; note when host times were taken (seconds of the machine's clock), a line each time."""
    shorten()
    take = run._Bench._take_host_times

    def noted(bench: Any, *given: Any) -> None:
        start_s = time.monotonic()
        take(bench, *given)
        time.sleep(HELD_S)
        with notes.open("a") as stream:
            stream.write(f"{start_s} {time.monotonic()}\n")

    run._Bench._take_host_times = noted  # type: ignore[method-assign, assignment]
    worker.serve(place, url, pipe)


def shorten() -> None:
    """Make visits and runs of this process as short as can be."""
    torch.set_num_threads(1)
    visit.SETTLE_S, visit.WINDOW_S = 0.005, 0.03
    model.SETTLE_S, model.WINDOW_S, model.MAX_REDONE, model.HOSTS_REDONE = 0.005, 0.03, 0, 0
    sweep.FIRST_SETTLE_S, sweep.SETTLE_S, sweep.WINDOW_S = 0.005, 0.005, 0.03
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5
    rounds.MAX_FAILURES_IN_A_ROW = 3


def fatal(save: Any, token: Path) -> Any:
    """Return a way to save that kills the process afterwards, if it finds the token."""

    def saved(store: Store, *given: Any) -> None:
        save(store, *given)
        if token.exists():
            token.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    return saved
