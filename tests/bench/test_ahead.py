"""Fused groups compiled in processes of their own: what they leave on disk is taken up here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from opdb.bench import ahead
from opdb.bench.ahead import compile_ahead, processes_for
from opdb.harvest import harvest, harvest_compiled
from opdb.models import ModelRequest
from opdb.operators import build
from opdb.records import Configuration


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.softmax(self.second(torch.tanh(self.first(x)) * 3), dim=-1)
        return y


def small() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Small(), (torch.randn(6, 24),)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of inductor's."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


def libraries(cache: Path) -> set[Path]:
    return {path for path in cache.rglob("*.so") if path.stat().st_size}


def test_what_is_compiled_ahead_is_not_compiled_again(cache: Path) -> None:
    request = ModelRequest("tests.bench.test_ahead:small")
    workload = harvest_compiled(request, harvest(request), "cpu", "this-processor")
    groups = [c for c in workload.occurrences() if c.kind == "fused"]
    broken = Configuration("fused", {"nodes": [], "outputs": []}, {"inputs": []})
    assert len(groups) > 1 and not libraries(cache)
    compile_ahead([broken, *groups], "cpu", 2, lambda: False)
    before = libraries(cache)
    assert before
    for group in groups:
        build(group, device="cpu")()
    assert libraries(cache) == before


def test_they_end_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def kept(*given: object) -> object:
        started.append(begin(*given))  # type: ignore[arg-type]
        return started[-1]

    begin = ahead._started
    monkeypatch.setattr(ahead, "_started", kept)
    began_s = time.monotonic()
    compile_ahead([Configuration("fused", {}, {})] * 4, "cpu", 2, lambda: True)
    assert time.monotonic() - began_s < 5
    assert [process.poll() for process in started] == [-9, -9]


def test_few_groups_and_few_processors_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert [processes_for(n) for n in (0, 7, 8, 31, 400)] == [0, 0, 2, 7, 8]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert processes_for(400) == 0
