"""Modes of execution on a real NVIDIA GPU: what they launch, save, refuse and leave behind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from opdb.bench import model
from opdb.bench.model import RunOptions, measure
from opdb.bench.run import campaign
from opdb.bench.session import Session, detect
from opdb.derive.runs import agreeing, repeat_spread, run_cost
from opdb.records import Mode, ModelRun
from opdb.spec import ModelSpec
from opdb.store import open_store

HERE = "tests.gpu.test_modes_on_gpu"
MODES: tuple[Mode, ...] = get_args(Mode)
SMALL = ModelSpec(f"{HERE}:small", batch_size=1)


def small() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Eight times a convolution, norm and activation: inductor tunes it in seconds."""
    block = (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU())
    return nn.Sequential(*(copy.deepcopy(each) for _ in range(8) for each in block)), (
        torch.ones(1, 32, 28, 28),
    )


@pytest.fixture(scope="module")
def session(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A campaign whose stretches are short, but long enough for power."""
    path = tmp_path_factory.mktemp("modes") / "opdb.sqlite"
    path.write_bytes(calibrated.read_bytes())
    with (
        pytest.MonkeyPatch.context() as patch,
        open_store(str(path)) as store,
        campaign(detect("cuda"), store) as opened,
    ):
        patch.setattr(model, "SETTLE_S", 0.25)
        patch.setattr(model, "WINDOW_S", 0.4)
        yield opened


@pytest.fixture(scope="module")
def runs(session: Session) -> dict[Mode, ModelRun]:
    """A small network at batch 1, once in every mode."""
    return {mode: measure(session, SMALL, "small", mode, RunOptions()) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_time_and_energy(runs: dict[Mode, ModelRun], mode: Mode) -> None:
    run = runs[mode]
    assert run.outcome == "ok", run.reason
    cost = run_cost([run])
    assert cost is not None and cost.energy_j is not None and cost.energy_j.mean > 0
    assert repeat_spread(agreeing(run.repeats)) < 0.5, "those that count"
    if mode not in ("eager", "graph"):
        assert run.facts["compiled"] is True
        assert (run.facts["graphs"], run.facts["graph_breaks"]) == (1, 0)
        assert run.facts["output_difference"] < 0.05
    if mode != "eager":
        assert run.facts["compile_time_s"] >= 0
    if mode == "compile:reduce-overhead":
        assert run.facts["cuda_graphs_left_out"] == 0


def test_inductor_launches_kernels_of_its_own(runs: dict[Mode, ModelRun]) -> None:
    eager, compiled = runs["eager"].kernels, runs["compile"].kernels
    assert eager is not None and compiled is not None
    assert any(name.startswith("triton_") for name in compiled)
    assert not any(name.startswith("triton_") for name in eager)
    assert sum(compiled.values()) < sum(eager.values())
    assert runs["dynamo"].kernels == eager
    assert runs["compile:reduce-overhead"].kernels is None


def asking() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Asks for a value in the middle, which no CUDA graph can hold."""

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            y: Tensor = self.linear(x) if x.sum().item() > 0 else x * 2
            return y

    return Asking(), (torch.ones(8, 64),)


def test_a_model_that_asks_for_values_is_refused_by_a_graph_alone(session: Session) -> None:
    request = ModelSpec(f"{HERE}:asking")
    found = {
        mode: measure(session, request, "asking", mode, RunOptions(repeats=1))
        for mode in ("graph", "eager", "compile", "dynamo")
    }
    assert found["graph"].outcome == "error"
    assert {found[mode].outcome for mode in ("eager", "compile", "dynamo")} == {"ok"}
    assert found["compile"].facts["graph_breaks"] >= 1
    torch.randn(8, device="cuda")  # torch itself refuses it after a capture that failed
