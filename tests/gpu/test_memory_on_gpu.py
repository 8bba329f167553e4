"""The memory that is stated for a workload, and what PyTorch allocates for it on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opdb.bench.model import TrainingStep
from opdb.harvest.passes import harvest
from opdb.memory import memory_of
from opdb.models import load
from opdb.records import Device
from opdb.spec import ModelSpec

WORKSPACES_BYTES = 200_000_000
"""What libraries may hold beside: cuBLAS some 70 MB on an H200, cuDNN what its choices take."""

TOLERANCE = 0.05

REQUESTS = [
    ModelSpec("resnet50"),
    ModelSpec("resnet50", batch_size=32),
    ModelSpec("resnet50", batch_size=128),
    ModelSpec("vit_b_16", batch_size=32),
    ModelSpec("bert", batch_size=8),
    ModelSpec("gpt2", batch_size=8, input_size=(512,)),
    ModelSpec("resnet50", batch_size=32, phase="training"),
    ModelSpec("resnet50", batch_size=32, phase="training", optimizer="adamw"),
]


def _peak_bytes(step: Callable[[], Any]) -> int:
    """Return the most that is allocated as a step runs that has run before."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _step(request: ModelSpec) -> Callable[[], Any]:
    loaded = load(request, device="cuda")
    if request.training is not None:
        return TrainingStep(loaded, request)

    def forward() -> None:
        with torch.no_grad():
            loaded.module(*loaded.args, **loaded.kwargs)

    return forward


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_stated_memory_is_what_is_allocated(request_: ModelSpec) -> None:
    if request_.name in ("bert", "gpt2"):
        pytest.importorskip("transformers")
    total = torch.cuda.get_device_properties(0).total_memory
    device = Device("gpu", "gpu", "cuda", None, total, None, None)
    stated = memory_of(harvest(request_), device)
    gc.collect()
    before = torch.cuda.memory_allocated()
    peak = _peak_bytes(_step(request_)) - before
    print(f"{request_}: stated {stated.needed_bytes / 1e6:.0f} MB, allocated {peak / 1e6:.0f} MB")
    assert stated.fits
    assert stated.needed_bytes <= (1 + TOLERANCE) * peak
    assert peak <= (1 + TOLERANCE) * stated.needed_bytes + WORKSPACES_BYTES
