"""Convolutions under named algorithms: kept apart from the usual ones, whatever is asked.

On a processor torch's convolution stands in the operator's place; see tests/algorithms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from opdb.algorithms.convolution import ForcedCall
from opdb.algorithms.names import algorithms_named
from opdb.bench.plan import BenchRequest
from opdb.bench.run import BenchResult, bench
from opdb.bench.visit import built
from opdb.errors import UnsupportedError
from opdb.operators import build
from opdb.records import Configuration
from opdb.store import Store
from tests.algorithms.stand_in import REFUSAL, stand_in
from tests.bench.calls import CONV, IMAGE, RELU, workload
from tests.heard import Heard

pytestmark = pytest.mark.usefixtures("short")
FFT, GEMM, GUESS, DEFAULT = algorithms_named(["fft", "gemm", "guess", "default"])
STRIDED = replace(CONV, parameters={"padding": [1, 1], "stride": [2, 2]})
BOTH = workload(CONV, STRIDED, RELU)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[ForcedCall]:
    return stand_in(monkeypatch)


def benched(store: Store, **options: Any) -> tuple[BenchResult, Heard]:
    heard = Heard()
    options = {"device": "cpu", "duplicates": 0.0, **options}
    with heard.visiting(store):
        return bench(store, BenchRequest(**options), heard), heard


def test_what_is_forced_is_stored_under_its_name(store: Store, calls: list[ForcedCall]) -> None:
    store.save_workload(BOTH)
    result, heard = benched(store, algorithms=(FFT, GEMM))
    assert {call.algorithm for call in calls} == {"fft", "gemm"}
    assert result.outcomes["unsupported"] == 2
    assert result.refused == {("fft", REFUSAL): 1, ("gemm", REFUSAL): 1}
    settings = Counter(visit.setting for visit in heard.visits if visit.outcome == "ok")
    assert {'"convolution_algorithm":"fft"' in text for text in settings} == {True, False}
    assert all("tf32_convolution" in text for text in settings)
    assert {visit.configuration for visit in heard.visits} == {CONV.key, STRIDED.key}
    again, _ = benched(store, algorithms=(FFT, GEMM), precision=100.0)
    assert again.campaign is None, "a refusal is an answer: nothing is pending"


def test_usual_measurements_know_nothing_of_forced_ones(
    store: Store, calls: list[ForcedCall]
) -> None:
    store.save_workload(BOTH)
    result, _ = benched(store, algorithms=(FFT,), precision=100.0)
    standing = store.standing(result.device)
    assert standing.pending == {"conv2d": 2, "relu": 1}
    assert standing.measured == 0 and not standing.failures and not standing.visits
    assert not store.failures(result.device) and not store.spent(result.device)
    assert not store.kernels(result.board)
    calls.clear()
    usual, heard = benched(store, precision=100.0)
    assert usual.configurations == 3 and not calls
    assert not any("convolution_algorithm" in visit.setting for visit in heard.visits)
    assert store.standing(result.device).measured == 3
    [cost] = [c for c in store.costs(result.board)[CONV.key] if "fft" in c.setting]
    assert not cost.host_time_s


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"stride": 1, "padding": "same", "dilation": 2},
        {"padding": [1, 0], "dilation": [2, 1]},
        {"padding": [1]},
    ],
)
def test_a_forced_call_computes_what_the_usual_one_does(
    parameters: dict[str, object], calls: list[ForcedCall]
) -> None:
    configuration = Configuration("conv2d", parameters, CONV.inputs)
    usual, by_fft = build(configuration), built(configuration, FFT, "cpu")
    assert torch.equal(usual(), by_fft())
    fresh = by_fft.with_fresh_weights()
    assert torch.equal(fresh(), usual()) and fresh.weights[0] is not by_fft.weights[0]
    assert len(calls) == 2


@pytest.mark.parametrize(
    "configuration",
    [
        replace(CONV, parameters={"padding": [1, 1], "padding_mode": "circular"}),
        Configuration("convolute", {}, {"input": IMAGE}),
    ],
)
def test_what_cannot_be_forced_is_unsupported(configuration: Configuration) -> None:
    with pytest.raises(UnsupportedError):
        built(configuration, FFT, "cpu")
