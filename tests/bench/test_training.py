"""Training on the processor: operators of all three passes, and whole steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from opdb.bench.model import RunOptions, TrainingStep, measure_models
from opdb.derive.runs import run_cost
from opdb.harvest.passes import harvest
from opdb.models import checked, load
from opdb.operators import BuiltBackward, build
from opdb.progress import Display
from opdb.records import Configuration, Mode, Workload
from opdb.spec import ModelSpec
from opdb.store import Store
from tests.own import model

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture(scope="module")
def trained() -> Workload:
    """A small convolutional network's training step."""
    return harvest(ModelSpec("tests.bench.test_training:network", phase="training"))


@model(
    (4, 3, 16, 16),
    first=lambda: nn.Conv2d(3, 8, 3, padding=1),
    norm=lambda: nn.BatchNorm2d(8),
    relu=lambda: nn.ReLU(inplace=True),
    drop=lambda: nn.Dropout(0.5),
    head=lambda: nn.Linear(8, 10),
)
def network(m: Any, x: torch.Tensor) -> Any:
    x = m.relu(m.norm(m.first(x)))
    x = x + m.drop(x)
    return m.head(x.mean(dim=(2, 3)))


def named(workload: Workload, title: str) -> Configuration:
    return next(c for c in workload.occurrences() if c.title == title)


def test_a_backward_pass_gives_what_autograd_gives(trained: Workload) -> None:
    call = build(named(trained, "linear backward"))
    assert isinstance(call, BuiltBackward)
    of_input, of_weight, of_bias = call()
    [rows], (given,) = call.forward.inputs, call.inputs
    weight = next(w for w in call.forward.weights if w.dim() == 2)
    assert of_input is not None and of_weight is not None and of_bias is not None
    torch.testing.assert_close(of_input, given @ weight)
    torch.testing.assert_close(of_weight, given.T @ rows)
    torch.testing.assert_close(of_bias, given.sum(0))


def test_a_training_step_is_measured(store: Store) -> None:
    request = checked(ModelSpec("tests.bench.test_training:network", phase="training"))
    store.save_workload(found := harvest(request))
    jobs: list[tuple[ModelSpec, Workload, Mode]] = [(request, found, "eager")]
    [(workload, run)], _ = measure_models(store, jobs, RunOptions(repeats=1), "cpu", Display())
    assert (run.outcome, run.reason) == ("ok", None)
    cost = run_cost([run])
    assert cost.time_s.mean > 0
    assert workload.phase == "training"
    assert workload.inputs["training"] == {"optimizer": "sgd", "accumulation": 1}


@pytest.mark.parametrize("batches", [1, 3])
def test_gradients_of_several_batches_add_up(batches: int) -> None:
    request = checked(
        ModelSpec("tests.bench.test_training:network", phase="training", accumulation=batches)
    )
    loaded = load(request, device="cpu")
    step = TrainingStep(loaded, request)
    for module in loaded.module.modules():  # one batch again and again has one gradient
        if isinstance(module, (nn.Dropout, nn.BatchNorm2d)):
            module.eval()
    whole = step.backward(step.forward())
    first = [p.grad.clone() for p in loaded.module.parameters() if p.grad is not None]
    for _ in range(batches - 1):
        step.backward(step.forward())
    found = [p.grad for p in loaded.module.parameters()]
    for once, all_ in zip(first, found, strict=True):
        torch.testing.assert_close(once * batches, all_)
    assert not whole.requires_grad
    step.update()
    assert all(p.grad is None for p in loaded.module.parameters())
