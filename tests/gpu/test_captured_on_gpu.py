"""Models that ask whether they are captured, on a real NVIDIA GPU: eager runs and CUDA graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opdb.bench.kernels import launched_kernels
from opdb.bench.measure import measure_models
from opdb.bench.model import RunOptions
from opdb.derive.launches import compare_launches
from opdb.harvest import harvest_in_both
from opdb.models import ModelRequest
from opdb.operators import build
from opdb.records import Mode, Workload
from opdb.store import open_store
from tests.harvest import captured_models

SMALL = {"batch_size": 2, "input_size": (64,)}
REQUESTS = {
    "gpt2": ModelRequest("gpt2", **SMALL),  # type: ignore[arg-type]
    "bert": ModelRequest("bert", **SMALL),  # type: ignore[arg-type]
    "causal": ModelRequest(captured_models.path("causal")),
}


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
    calibrated: Path, tmp_path: Path, name: str, mode: Mode
) -> None:
    request = REQUESTS[name].checked()
    found = harvest_in_both(request)
    called = (found.captured if mode == "graph" else None) or found.workload
    assert called.unsupported == {}
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(calibrated.read_bytes())
    with open_store(str(path)) as store:
        [(_, run)] = measure_models(store, [(request, mode)], RunOptions(repeats=1), device="cuda")
    assert (run.outcome, run.reason) == ("ok", None)
    compared = compare_launches(called, run, kernels_of(called))
    assert compared is not None and compared.unseen == ()
    assert (compared.model, compared.operators) == ({}, {})


def test_the_models_differ_where_they_ask() -> None:
    """Else the runs above would show nothing; GPT-2's hangs on the version of transformers."""
    assert harvest_in_both(REQUESTS["causal"].checked()).captured is not None


def test_a_listing_is_hidden_unless_it_is_what_is_measured() -> None:
    told = []

    def step() -> torch.Tensor:
        told.append(torch.cuda.is_current_stream_capturing())
        return place + 1

    place = torch.ones(4, device="cuda")
    step()
    assert launched_kernels(step) == launched_kernels(step, hidden=False)
    assert told == [False, False, True]


def test_what_only_eager_can_do_is_not_listed() -> None:
    """A model that reads values unless it is captured: its eager run synchronises."""
    place = torch.ones(4, device="cuda")

    def step() -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing() or bool((place > 0).all()):
            return place + 1
        return place

    step()
    assert launched_kernels(step) is None
    assert launched_kernels(step, hidden=False)


def test_a_backward_pass_with_dropout_is_listed_while_the_capture_is_hidden() -> None:
    """Its seed lies elsewhere where its forward pass was captured: opdb itself must know it."""
    request = replace(REQUESTS["gpt2"], phase="training", optimizer="sgd").checked()
    drawing = [
        configuration
        for configuration in harvest_in_both(request).workload.occurrences()
        if configuration.kind == "scaled_dot_product_attention"
        and configuration.pass_name == "backward"
    ]
    assert drawing
    for configuration in drawing:
        assert launched_kernels(build(configuration, device="cuda"))
