"""Training on a GPU: backward passes in CUDA graphs, their kernels, a step from its operators."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from opdb.bench.driver import train, why_no_amp
from opdb.bench.host import blocks_of
from opdb.bench.model import TrainingStep
from opdb.bench.replay import Rotation, capture, launched_kernels, warm_up
from opdb.bench.session import Session
from opdb.bench.visit import issuing
from opdb.derive.quiet import quiet_time_s
from opdb.harvest.passes import harvest
from opdb.models import checked, load
from opdb.operators import build
from opdb.records import Workload
from opdb.runs import DriverOptions
from opdb.spec import ModelSpec
from opdb.store import Store
from tests.harvest import test_step

MODULES = {
    "conv2d": nn.Conv2d,
    "batch_norm": nn.BatchNorm2d,
    "linear": nn.Linear,
    "layer_norm": nn.LayerNorm,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "max_pool2d": nn.MaxPool2d,
}
MODELS = ("resnet18", "mobilenet_v2", "vgg11", "distilbert")
OWN = tuple(f"{test_step.HERE}:{name}" for name in ("changed_view", "other_layout", "learned_bias"))
"""Views that are changed in place, gradients in another layout, attention with a learned bias."""


def request(name: str, optimizer: str = "sgd") -> ModelSpec:
    batch_size = 2 if name in OWN else 4
    return checked(ModelSpec(name, phase="training", batch_size=batch_size, optimizer=optimizer))


@cache
def harvested(name: str, autocast: str | None = None, optimizer: str = "sgd") -> Workload:
    return harvest(replace(request(name, optimizer), autocast=autocast))


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_every_operator_of_a_step_is_captured_as_a_graph(name: str) -> None:
    """As a bench does, but that its graphs hold as many calls as milliseconds take."""
    for configuration in harvested(name).occurrences():
        call = build(configuration, device="cuda")
        with issuing(call):
            step = Rotation(call, l2_bytes=2**20, cold=True)
            warm_up(step, 1)
            step.rewind()
            try:
                graph = capture(step, min(step.copies, 4))
            except RuntimeError as error:
                pytest.fail(f"{configuration.json}: {error}")
            graph.replay()
        torch.cuda.synchronize()
        del call, step, graph


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_optimizer_step_is_captured_and_runs_multi_tensor_kernels(optimizer: str) -> None:
    update = harvested("resnet18", optimizer=optimizer).calls[-1].configuration
    kernels = launched_kernels(build(update, device="cuda"))
    assert kernels is not None
    assert any("multi_tensor_apply" in name for name in kernels)
    assert sum(kernels.values()) < len(update.inputs["params"])


def test_a_step_of_adamw_is_listed_although_it_refuses_to_be_captured() -> None:
    asked = request("resnet18", "adamw")
    step = TrainingStep(load(asked, device="cuda"), asked)
    step()
    assert any("multi_tensor_apply" in name for name in launched_kernels(step) or ())
    assert launched_kernels(step, hidden=False) is None


@pytest.mark.parametrize("autocast", [None, "bfloat16"])
@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_a_step_launches_what_its_operators_launch(name: str, autocast: str | None) -> None:
    asked = replace(request(name), autocast=autocast)
    loaded = load(asked, device="cuda")
    step = TrainingStep(loaded, asked)
    step()
    of_model = launched_kernels(step)
    assert of_model is not None
    together: Counter[str] = Counter()
    for configuration, count in harvested(name, autocast).occurrences().items():
        call = build(configuration, device="cuda")
        call()
        for kernel, launches in (launched_kernels(call) or {}).items():
            together[kernel] += count * launches
    missing, added = Counter(of_model) - together, together - Counter(of_model)
    different = missing.total() + added.total()
    assert different <= 0.1 * sum(of_model.values()), "\n".join(
        f"{what} {launches} {kernel}"
        for what, kernels in (("only the model:", missing), ("only operators:", added))
        for kernel, launches in kernels.items()
    )


@pytest.mark.parametrize("name", MODELS)
def test_modules_give_the_dtypes_on_the_gpu_that_the_harvest_tells(name: str) -> None:
    asked = replace(request(name), autocast="bfloat16")
    calls = harvested(name, "bfloat16").calls
    told = [c.configuration for c in calls if c.configuration.kind in MODULES]
    loaded = load(asked, device="cuda")
    given: list[str] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        if type(module) in MODULES.values():
            given.append(str(args[0].dtype).removeprefix("torch."))

    for module in loaded.module.modules():
        module.register_forward_hook(note)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loaded.module(*loaded.args, **loaded.kwargs)
    told = [c for c in told if c.pass_name == "forward"]
    assert [c.inputs["input"]["dtype"] for c in told] == given


@pytest.mark.parametrize("amp", [False, True])
def test_a_training_run_on_the_gpu(store: Store, session: Session, amp: bool) -> None:
    options = DriverOptions(warmup_iters=3, iters=20, repeats=1, nvtx=True)
    assert why_no_amp(session.platform.torch_device) is None
    autocast = "bfloat16" if amp else None
    workload = harvested("resnet18", autocast)
    store.save_workload(workload)
    run = train(session, replace(request("resnet18"), autocast=autocast), workload.key, options)
    store.save_model_run(run)
    assert (run.outcome, run.reason) == ("ok", None)
    assert (run.setting, run.facts["precision"]) == ({}, "amp" if amp else "float32")
    assert run.peak_memory_bytes is not None and run.kernels
    whole_s = run.facts["measured_s"] / 20
    assert 0 < run.facts["compute_time_s"] <= 1.05 * whole_s


def step_s(step: TrainingStep) -> float:
    """Return the quiet time of one step (seconds), timed as calls are, in blocks."""

    def one_step() -> list[float]:
        torch.cuda.synchronize()
        begun_s = time.perf_counter()
        step()
        return [time.perf_counter() - begun_s]

    return quiet_time_s([step_s for [step_s] in blocks_of(one_step)])
