from __future__ import annotations

import pytest

from opdb.models.sources import family_names
from opdb.spec import ModelSpec
from tests.harvest import sample_models
from tests.harvest.oracle import consult

SMALL = {
    # name: an input small enough for the CPU
    "resnet18": (3, 32, 32),
    "densenet121": (3, 32, 32),
    "googlenet": (3, 64, 64),
    "mobilenet_v3_small": (3, 32, 32),
    "shufflenet_v2_x0_5": (3, 32, 32),
    "squeezenet1_0": (3, 64, 64),
    "efficientnet_b0": (3, 32, 32),
    "swin_v2_t": (3, 64, 64),
    "convnext_tiny": (3, 64, 64),
    "lraspp_mobilenet_v3_large": (3, 64, 64),
    "r3d_18": (3, 4, 32, 32),
}
FAMILIES = ("classification", "segmentation", "video")
ON_META = [name for family in FAMILIES for name in family_names(family)]


@pytest.mark.parametrize("name", SMALL)
def test_every_computing_call_on_real_tensors_is_inside_one_operator(name: str) -> None:
    verdict = consult(ModelSpec(name, input_size=SMALL[name]), "cpu")
    assert verdict.faults() == []
    assert verdict.inside


@pytest.mark.parametrize("name", [*ON_META, "lstm", "transformer", "mlp"])
def test_every_computing_call_on_meta_is_inside_one_operator(name: str) -> None:
    verdict = consult(ModelSpec(name), "meta")
    assert verdict.faults() == []
    assert verdict.inside


@pytest.mark.parametrize("name", sample_models.COMPLETE)
def test_every_computing_call_of_an_own_model_is_inside_one_operator(name: str) -> None:
    verdict = consult(ModelSpec(sample_models.path(name)), "cpu")
    assert verdict.faults() == []
    assert verdict.inside


def test_the_oracle_sees_what_a_scripted_function_hides() -> None:
    verdict = consult(ModelSpec(sample_models.path("scripted")), "cpu")
    assert verdict.outside == {"mul": 1, "add": 1}
