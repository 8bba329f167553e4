"""Prefill and decoding steps on a real NVIDIA GPU: replayed, measured, kernel by kernel."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from opdb.bench.model import RunOptions, measure
from opdb.bench.replay import capture, launched_kernels, warm_up
from opdb.bench.run import campaign
from opdb.bench.session import Session
from opdb.harvest.passes import harvest_in_both
from opdb.models import checked, load
from opdb.operators import build
from opdb.spec import ModelSpec
from opdb.store import open_store

pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"


def request_of(phase: str, **said: Any) -> ModelSpec:
    return ModelSpec(TINY, phase=phase, batch_size=2, dtype="bfloat16", **said)  # type: ignore[arg-type]


REQUESTS = {
    "static step": request_of("decode", context=100, cache_length=128),
    "dynamic step": request_of("decode", context=100, cache="dynamic"),
    "static prefill": request_of("prefill", input_size=(64,), cache_length=128),
}


@pytest.fixture(scope="module")
def session(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = shutil.copy(calibrated, tmp_path_factory.mktemp("generation"))
    with open_store(str(path)) as store, campaign("cuda", store) as opened:
        yield opened


@pytest.mark.parametrize("name", ["static step", "dynamic step"])
def test_a_step_is_replayed_at_its_context_for_ever(name: str) -> None:
    loaded = load(REQUESTS[name], device="cuda")
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


@pytest.mark.parametrize("name", REQUESTS)
def test_a_graph_runs_the_kernels_of_its_operators(session: Session, name: str) -> None:
    request = checked(REQUESTS[name])
    found = harvest_in_both(request)
    workload = found.captured or found.workload
    run = measure(session, request, found.workload.key, "graph", RunOptions(repeats=1))
    assert run.outcome == "ok", run.reason
    launched: Counter[str] = Counter()
    for configuration, count in workload.occurrences().items():
        call = build(configuration, device="cuda")
        call()
        kernels = launched_kernels(call)
        assert kernels is not None, configuration.json
        launched.update({kernel: count * n for kernel, n in kernels.items()})
    assert Counter(run.kernels) == launched
