"""Training on a GPU: backward passes in CUDA graphs, their kernels, a step from its operators."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opdb.bench.driver import train, why_no_amp
from opdb.bench.kernels import launched_kernels
from opdb.bench.options import DriverOptions
from opdb.bench.replay import Rotation, prepare
from opdb.bench.run import campaign
from opdb.bench.training import TrainingStep
from opdb.bench.visit import issuing
from opdb.harvest import harvest
from opdb.models import ModelRequest, load
from opdb.operators import build
from opdb.store import open_store

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


def request(name: str, optimizer: str = "sgd") -> ModelRequest:
    return ModelRequest(name, phase="training", batch_size=4, optimizer=optimizer).checked()


@pytest.mark.parametrize("name", MODELS)
def test_every_operator_of_a_step_is_captured_as_a_graph(name: str) -> None:
    for configuration in harvest(request(name)).occurrences():
        call = build(configuration, device="cuda")
        with issuing(call):
            step = Rotation(call, l2_bytes=2**20, cold=True)
            replay = prepare(step, device_type="cuda", copies=step.copies)
            replay.issue()
        torch.cuda.synchronize()
        if launched_kernels(call):
            assert replay.how == "graph", (configuration.json, replay.flags)
        del call, step, replay
        torch.cuda.empty_cache()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_optimizer_step_is_captured_and_runs_multi_tensor_kernels(optimizer: str) -> None:
    update = harvest(request("resnet18", optimizer)).calls[-1].configuration
    kernels = launched_kernels(build(update, device="cuda"))
    assert kernels is not None
    assert any("multi_tensor_apply" in name for name in kernels)
    assert sum(kernels.values()) < len(update.inputs["params"])


@pytest.mark.parametrize("autocast", [None, "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_launches_what_its_operators_launch(name: str, autocast: str | None) -> None:
    asked = replace(request(name), autocast=autocast)
    loaded = load(asked, device="cuda")
    step = TrainingStep(loaded, asked)
    step()
    of_model = launched_kernels(step)
    assert of_model is not None
    together: Counter[str] = Counter()
    for configuration, count in harvest(asked).occurrences().items():
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
    told = [c.configuration for c in harvest(asked).calls if c.configuration.kind in MODULES]
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
def test_a_training_run_on_the_gpu(calibrated: Path, tmp_path: Path, amp: bool) -> None:
    options = DriverOptions(warmup_iters=3, iters=20, repeats=1, nvtx=True)
    with (
        open_store(str(shutil.copy(calibrated, tmp_path))) as store,
        campaign("cuda", store) as session,
    ):
        assert why_no_amp(session.platform.torch_device) is None
        asked = replace(request("resnet18"), autocast="bfloat16" if amp else None)
        workload = harvest(asked)
        store.save_workload(workload)
        run = train(session, asked, workload.key, options)
        store.save_model_run(run)
    assert (run.outcome, run.reason) == ("ok", None)
    assert (run.setting, run.facts["precision"]) == ({}, "amp" if amp else "float32")
    assert run.peak_memory_bytes is not None and run.kernels
    whole_s = run.facts["measured_s"] / 20
    assert 0 < run.facts["compute_time_s"] <= 1.05 * whole_s
