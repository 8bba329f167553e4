"""Models that ask whether they are captured, on a real NVIDIA GPU: eager runs and CUDA graphs."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch

from opdb.bench.model import RunOptions, measure
from opdb.bench.replay import capture, launched_kernels, warm_up
from opdb.bench.session import Session
from opdb.derive.runs import compare_launches
from opdb.harvest.passes import harvest_in_both
from opdb.models import checked, load
from opdb.operators import build
from opdb.records import Harvest, Mode, Workload
from opdb.spec import ModelSpec
from tests.harvest import captured_models

SMALL = {"batch_size": 2, "input_size": (64,)}
REQUESTS = {
    "gpt2": ModelSpec("gpt2", **SMALL),  # type: ignore[arg-type]
    "bert": ModelSpec("bert", **SMALL),  # type: ignore[arg-type]
    "causal": ModelSpec(captured_models.path("causal")),
}


@cache
def harvested(name: str) -> Harvest:
    return harvest_in_both(checked(REQUESTS[name]))


def kernels_of(workload: Workload) -> dict[str, Counter[str]]:
    """Return what one call of each configuration launches, by key."""
    found = {}
    for configuration in workload.occurrences():
        call = build(configuration, device="cuda")
        call()
        kernels = launched_kernels(call)
        assert kernels is not None, configuration.json
        found[configuration.key] = Counter(kernels)
    return found


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_run_launches_what_the_model_calls_in_its_mode(
    session: Session, name: str, mode: Mode
) -> None:
    found = harvested(name)
    called = (found.captured if mode == "graph" else None) or found.workload
    assert called.unsupported == {}
    run = measure(session, checked(REQUESTS[name]), found.workload.key, mode, RunOptions(repeats=1))
    assert (run.outcome, run.reason) == ("ok", None)
    compared = compare_launches(called, run, kernels_of(called))
    assert compared is not None and compared.unseen == ()
    assert (compared.model, compared.operators) == ({}, {})


TINY = "tests.models.decoders:llama"


def request_of(phase: str, **said: Any) -> ModelSpec:
    return ModelSpec(TINY, phase=phase, batch_size=2, dtype="bfloat16", **said)  # type: ignore[arg-type]


PASSES = {
    "static step": request_of("decode", context=100, cache_length=128),
    "dynamic step": request_of("decode", context=100, cache="dynamic"),
    "static prefill": request_of("prefill", input_size=(64,), cache_length=128),
}


@pytest.mark.parametrize("name", ["static step", "dynamic step"])
def test_a_step_is_replayed_at_its_context_for_ever(name: str) -> None:
    loaded = load(PASSES[name], device="cuda")
    outputs: list[torch.Tensor] = []

    def step() -> None:
        with torch.no_grad():
            outputs[:] = [loaded.module(*loaded.args)]

    step()
    eager = outputs[0].clone()
    warm_up(step)
    graph = capture(step, 1)
    for _ in range(1000):  # of a cache of 128 positions
        graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(outputs[0], eager, atol=1e-2)
    if name == "static step":
        module: Any = loaded.module
        assert module.counters[:, 0].tolist() == [101, 101]


@pytest.mark.parametrize("name", PASSES)
def test_a_graph_runs_the_kernels_of_its_operators(session: Session, name: str) -> None:
    request = checked(PASSES[name])
    found = harvest_in_both(request)
    workload = found.captured or found.workload
    run = measure(session, request, found.workload.key, "graph", RunOptions(repeats=1))
    assert run.outcome == "ok", run.reason
    launched: Counter[str] = Counter()
    for key, kernels in kernels_of(workload).items():
        count = sum(call.configuration.key == key for call in workload.calls)
        launched.update({kernel: count * n for kernel, n in kernels.items()})
    assert Counter(run.kernels) == launched
