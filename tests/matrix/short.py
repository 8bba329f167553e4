"""A training's process as tests start it: torch imported beforehand, its calibration short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opdb.bench import calibrate
from opdb.matrix import alone
from tests import warm


def start_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start trainings' processes so: these have no CUDA to keep apart."""
    warm.load_before_forks("tests.matrix.short")
    monkeypatch.setattr(alone, "START", "forkserver")
    monkeypatch.setattr(alone, "begin", begin)


def begin(work: Callable[..., None], given: tuple[Any, ...], pipe: Any) -> None:
    torch.set_num_threads(1)
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5
    alone.begin(work, given, pipe)
