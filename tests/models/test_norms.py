"""Batch norms on the processor: calibrated by one pass, and the model's state put back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.models import LoadedModel, load
from opdb.models.steps import calibrate_batch_norms
from opdb.spec import ModelSpec


def loaded(module: nn.Module, *args: object) -> LoadedModel:
    return LoadedModel("own", "python", "0", module, args, {}, {"args": [], "kwargs": {}}, 1)


def norms(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]


def test_statistics_of_resnet18_are_calibrated_and_its_outputs_finite() -> None:
    made = load(ModelSpec("resnet18", batch_size=1, input_size=(3, 64, 64)), device="cpu")
    calibrate_batch_norms(made)
    found: list[float] = []

    def look(_: nn.Module, __: Any, output: Tensor) -> None:
        found.append(float(output.std()))

    hooks = [norm.register_forward_hook(look) for norm in norms(made.module)]
    with torch.no_grad():
        outputs = made.module(*made.args)
    for hook in hooks:
        hook.remove()
    assert torch.isfinite(outputs).all()
    assert len(found) == 20
    assert all(0.2 < spread < 5 for spread in found), "activations neither grow nor vanish"
    assert not any(m.training for m in made.module.modules())
    assert all(n.momentum == 0.1 for n in norms(made.module))
    assert made.args[0].shape[0] == 1


def test_calibration_puts_mode_and_momentum_back_when_the_model_fails() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3, momentum=0.25)
            self.frozen = nn.BatchNorm2d(3).train()

        def forward(self, x: Tensor) -> Tensor:
            self.norm(x)
            raise RuntimeError("half way")

    module = Failing()
    module.norm.eval()
    with pytest.raises(RuntimeError, match="half way"):
        calibrate_batch_norms(loaded(module, torch.randn(2, 3, 4, 4)))
    assert (module.norm.training, module.norm.momentum) == (False, 0.25)
    assert module.frozen.training


def test_weights_are_left_alone_and_dropout_stays_off() -> None:
    module = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
    before = copy.deepcopy(dict(module.named_parameters()))
    calibrate_batch_norms(loaded(module, torch.randn(2, 3, 4, 4)))
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    assert not module[2].training


def test_a_batch_of_one_image_in_a_list_has_statistics_too() -> None:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3).eval()

        def forward(self, images: list[Tensor]) -> Tensor:
            pooled = torch.stack(images).mean((2, 3), keepdim=True)  # one value a channel and image
            return self.norm(pooled)

    module = Detector()
    made = loaded(module, [torch.ones(3, 4, 4)])
    calibrate_batch_norms(made)
    assert module.norm.running_mean is not None
    assert (module.norm.running_mean != 1).all(), "of it and of a random one"
    assert len(made.args[0]) == 1
