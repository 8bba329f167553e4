"""Training on a GPU: backward passes in CUDA graphs, their kernels, a step from its operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from opdb.bench.driver import DriverOptions, train, why_no_amp
from opdb.bench.kernels import launched_kernels
from opdb.bench.replay import Rotation, prepare
from opdb.bench.run import campaign
from opdb.bench.training import TrainingStep
from opdb.bench.visit import issuing
from opdb.harvest import harvest
from opdb.models import ModelRequest, load
from opdb.operators import build
from opdb.store import open_store

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


@pytest.mark.parametrize("name", MODELS)
def test_a_step_launches_what_its_operators_launch(name: str) -> None:
    asked = request(name)
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
    assert missing.total() + added.total() <= 0.1 * sum(of_model.values()), (missing, added)


@pytest.mark.parametrize("amp", [False, True])
def test_a_training_run_on_the_gpu(tmp_path: Path, amp: bool) -> None:
    options = DriverOptions(amp=amp, warmup_iters=3, iters=20, repeats=1, nvtx=True)
    with (
        open_store(str(tmp_path / "opdb.sqlite")) as store,
        campaign("cuda", store) as session,
    ):
        assert why_no_amp(session.platform.torch_device) is None
        asked = request("resnet18")
        workload = harvest(asked)
        store.save_workload(workload)
        run = train(session, asked, workload.key, options)
        store.save_model_run(run)
    assert (run.outcome, run.reason) == ("ok", None)
    assert run.setting == ({"autocast": "bfloat16"} if amp else {})
    assert run.peak_memory_bytes is not None and run.kernels
    whole_s = run.facts["measured_s"] / 20
    assert 0 < run.facts["compute_time_s"] <= 1.05 * whole_s
