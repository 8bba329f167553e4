"""What a harvest writes down can be built again: same output shapes and dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opdb.harvest.passes import record
from opdb.harvest.recorder import Recorder
from opdb.models import load
from opdb.models.inputs import tensors
from opdb.models.sources import family_names
from opdb.operators import build
from opdb.records import Configuration, Form, Json
from opdb.spec import ModelSpec
from tests.harvest import sample_models

FAMILIES = ("classification", "segmentation", "video")
NAMES = [name for family in FAMILIES for name in family_names(family)]
# the shape of what a boolean index picks hangs on the values, which are not kept
OWN = tuple(name for name in sample_models.COMPLETE if name != "asks_for_values")

Outputs = list[tuple[list[int], torch.dtype]]


def seen(output: Any) -> Outputs:
    return [(list(tensor.shape), tensor.dtype) for tensor in tensors(output)]


def outputs_of(request: ModelSpec, device: str) -> dict[tuple[Configuration, Form], Outputs]:
    """Run a model and return the outputs of its recorded calls, by configuration and form."""
    found: dict[tuple[Configuration, Form], Outputs] = {}

    class Keeping(Recorder):
        def keep(self, configuration: Configuration, form: Form, output: Any) -> Json | None:
            found[configuration, form] = seen(output)
            return super().keep(configuration, form, output)

    record(load(request, device=device), recorder_type=Keeping)
    return found


def mismatches(request: ModelSpec, device: str) -> list[str]:
    wrong = []
    for (configuration, form), expected in outputs_of(request, device).items():
        call = build(Configuration.from_json(configuration.json), form=form, device=device)
        found = seen(call())
        if found != expected:
            wrong.append(f"{configuration.json} ({form}): {found} instead of {expected}")
    return wrong


@pytest.mark.parametrize("name", [*NAMES, "lstm", "transformer", "mlp"])
def test_models_round_trip_on_meta(name: str) -> None:
    assert mismatches(ModelSpec(name), "meta") == []


@pytest.mark.parametrize("name", OWN)
def test_own_models_round_trip_on_the_cpu(name: str) -> None:
    assert mismatches(ModelSpec(sample_models.path(name)), "cpu") == []
