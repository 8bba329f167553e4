"""A process as tests start it: torch imported beforehand, what it measures short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opdb import processes
from opdb.bench import calibrate, model
from tests import warm


def start_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes so: these have no CUDA to keep apart."""
    warm.load_before_forks("tests.matrix.short")
    monkeypatch.setattr(processes, "START", "forkserver")
    monkeypatch.setattr(processes, "begin", begin)


def begin(work: Callable[..., None], given: tuple[Any, ...], pipe: Any) -> None:
    torch.set_num_threads(1)
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5
    model.SETTLE_S, model.WINDOW_S = 0.002, 0.02
    processes.begin(work, given, pipe)
