"""Training on a GPU: backward passes in CUDA graphs, their kernels, a step from its operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch

from opdb.bench.driver import train, why_no_amp
from opdb.bench.model import TrainingStep
from opdb.bench.replay import Rotation, capture, launched_kernels, warm_up
from opdb.bench.session import Session
from opdb.bench.visit import issuing
from opdb.harvest.passes import harvest
from opdb.models import checked, load
from opdb.operators import build
from opdb.records import Workload
from opdb.runs import DriverOptions
from opdb.spec import ModelSpec
from opdb.store import Store
from tests.harvest import test_step

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
