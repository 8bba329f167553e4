"""Autocast on meta: dtypes, which calls it touches, and their passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.operators import build
from opdb.records import Configuration, Workload
from opdb.spec import ModelSpec

MODULES = {
    "conv2d": nn.Conv2d,
    "batch_norm": nn.BatchNorm2d,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "linear": nn.Linear,
    "max_pool2d": nn.MaxPool2d,
}


def harvested(name: str, *, autocast: str | None = "bfloat16", phase: Any = "training") -> Workload:
    return harvest(ModelSpec(name, phase=phase, batch_size=2, autocast=autocast))


def titles(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.title for call in workload.calls)


def of_kind(workload: Workload, title: str) -> list[Configuration]:
    return [c.configuration for c in workload.calls if c.configuration.title == title]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg11"])
def test_modules_get_the_dtypes_that_autocast_gives_them(name: str) -> None:
    # of these modules a processor's autocast casts what a GPU's does
    loaded = load(ModelSpec(name, phase="training", batch_size=2), device="cpu")
    given: list[str] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        given.append(str(args[0].dtype).removeprefix("torch."))

    for module in loaded.module.modules():
        if isinstance(module, tuple(MODULES.values())):
            module.register_forward_hook(note)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loaded.module(*loaded.args, **loaded.kwargs)
    found = [c.configuration for c in harvested(name).calls if c.form == "module"]
    told = [c.inputs["input"]["dtype"] for c in found if c.kind in MODULES]
    assert told == given
    assert {"float32", "bfloat16"} <= set(told)


@pytest.mark.parametrize("name", ["resnet18", "distilbert", "lstm", "vit_b_16"])
def test_the_same_calls_are_made_and_every_one_can_run(name: str) -> None:
    cast, plain = harvested(name), harvested(name, autocast=None)
    assert cast.unsupported == {} and cast.autocast == "bfloat16"
    assert titles(cast) == titles(plain)
    assert cast.key != plain.key


@pytest.mark.parametrize("title", ["conv2d", "conv2d backward", "cross_entropy backward"])
def test_a_call_under_autocast_runs_in_its_dtype(title: str) -> None:
    for configuration in set(of_kind(harvested("resnet18"), title)):
        output = build(configuration)()
        tensors = (
            [output] if isinstance(output, torch.Tensor) else [t for t in output if t is not None]
        )
        wanted = torch.bfloat16 if title == "conv2d" else None
        assert all(t.dtype == (wanted or t.dtype) and t.isfinite().all() for t in tensors)
        if title == "conv2d backward":
            assert tensors[-1].dtype == torch.float32  # the weight is kept in float32
