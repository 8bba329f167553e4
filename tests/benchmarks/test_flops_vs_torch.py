"""Counted FLOPs of whole models are torch's, wherever torch counts: a share of the 80 models."""

from __future__ import annotations

import pytest

from benchmarks.flops_vs_torch import PHASES, compare
from opdb.records import Phase

MODELS = (
    "alexnet",
    "convnext_tiny",
    "efficientnet_b0",
    "inception_v3",
    "maxvit_t",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "swin_v2_t",
    "vit_b_16",
)
"""Of torchvision's families those that differ in what they call; all 80 are the benchmark's."""


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("model", MODELS)
def test_products_are_equal(model: str, phase: Phase) -> None:
    found = compare(model, phase)
    assert found.opdb == found.torch
    assert found.beyond > 0
