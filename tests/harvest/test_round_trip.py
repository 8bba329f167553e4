"""What a harvest writes down can be built again: same output shapes and dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opdb.harvest import Recorder, record
from opdb.models import ModelRequest, load
from opdb.models.inputs import tensors
from opdb.operators import build
from opdb.records import Configuration, Form, Json
from tests.harvest import sample_models

NAMES = (
    *("resnet18", "densenet121", "googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_5"),
    *("efficientnet_b0", "swin_v2_t", "convnext_tiny", "vit_b_16", "maxvit_t", "regnet_y_400mf"),
    *("lraspp_mobilenet_v3_large", "fcn_resnet50", "mvit_v2_s", "s3d", "swin3d_t", "r2plus1d_18"),
    *("lstm", "transformer", "mlp"),
)
# the shape of what a boolean index picks hangs on the values, which are not kept
OWN = tuple(name for name in sample_models.COMPLETE if name != "asks_for_values")

Outputs = list[tuple[list[int], torch.dtype]]


def seen(output: Any) -> Outputs:
    return [(list(tensor.shape), tensor.dtype) for tensor in tensors(output)]


def outputs_of(request: ModelRequest, device: str) -> dict[tuple[Configuration, Form], Outputs]:
    """Run a model and return the outputs of its recorded calls, by configuration and form."""
    found: dict[tuple[Configuration, Form], Outputs] = {}

    class Keeping(Recorder):
        def keep(self, configuration: Configuration, form: Form, output: Any) -> Json | None:
            found[configuration, form] = seen(output)
            return super().keep(configuration, form, output)

    record(load(request, device=device), recorder_type=Keeping)
    return found


def mismatches(request: ModelRequest, device: str) -> list[str]:
    wrong = []
    for (configuration, form), expected in outputs_of(request, device).items():
        call = build(Configuration.from_json(configuration.json), form=form, device=device)
        found = seen(call())
        if found != expected:
            wrong.append(f"{configuration.json} ({form}): {found} instead of {expected}")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_models_round_trip_on_meta(name: str) -> None:
    assert mismatches(ModelRequest(name), "meta") == []


@pytest.mark.parametrize("name", OWN)
def test_own_models_round_trip_on_the_cpu(name: str) -> None:
    assert mismatches(ModelRequest(sample_models.path(name)), "cpu") == []
