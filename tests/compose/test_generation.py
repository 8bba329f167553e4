"""Sums of the passes of a generation: at which lengths steps are predicted, and their weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opdb.compose import compose
from opdb.compose.generation import (
    Total,
    gathers_experts,
    weights,
    work_shares,
)
from opdb.growth import lengths
from opdb.records import Configuration
from tests.compose.test_composer import CONV, RELU, cost, inputs, workload


@pytest.mark.parametrize(("first", "last"), [(7, 7), (5, 9), (100, 3000)])
def test_weights_sum_what_is_linear_exactly(first: int, last: int) -> None:
    knots = lengths(first, last)
    found = weights(knots, first, last)
    every = range(first, last + 1)
    assert math.isclose(sum(found), len(every))
    of_knots = sum(n * (3 + 0.5 * knot) for n, knot in zip(found, knots, strict=True))
    assert math.isclose(of_knots, sum(3 + 0.5 * length for length in every))


def test_one_step_stands_for_all_of_a_static_cache() -> None:
    assert weights([100], 100, 354) == [255]


def test_a_step_counts_to_the_lengths_around_it() -> None:
    assert weights([5, 7, 9], 5, 9) == [1.5, 2, 1.5]
    assert weights([5, 9], 6, 8) == pytest.approx([1.5, 1.5])
    assert weights([1, 3, 5, 7, 9], 1, 9) == [1.5, 2, 2, 2, 1.5]


def test_a_total_is_each_pass_as_often_as_it_runs() -> None:
    rests_on = inputs(cost(CONV, 3e-3, 0.6), cost(RELU, 1e-3, 0.1))
    first, step = (compose(workload(c), "graph", rests_on) for c in (CONV, RELU))
    found = Total.of([(1.0, first), (9.0, step)])
    assert found.time_s == pytest.approx(12e-3)
    assert found.energy_j == pytest.approx(100 * 12e-3 + 0.6 + 0.9)
    assert first.time_interval_s and step.time_interval_s and found.time_interval_s
    assert found.time_interval_s == pytest.approx(
        [a + 9 * b for a, b in zip(first.time_interval_s, step.time_interval_s, strict=True)]
    )
    assert first.energy_interval_j and step.energy_interval_j and found.energy_interval_j
    assert found.energy_interval_j == pytest.approx(
        [a + 9 * b for a, b in zip(first.energy_interval_j, step.energy_interval_j, strict=True)]
    )
    dark = Total.of([(1.0, first), (9.0, replace(step, energy_j=None, energy_interval_j=None))])
    assert (dark.time_s, dark.energy_j, dark.energy_interval_j) == (found.time_s, None, None)
    assert dark.time_interval_s == found.time_interval_s


TOKENS = {"shape": [2, 8], "dtype": "float32"}
HEADS = {"shape": [1, 2, 4, 8], "dtype": "float32"}
LINEAR = Configuration("linear", {}, {"input": TOKENS, "weight": {**TOKENS, "role": "weight"}})
ATTENTION = Configuration(
    "scaled_dot_product_attention", {}, {"query": HEADS, "key": HEADS, "value": HEADS}
)
PRODUCT = Configuration("matmul", {}, {"input": TOKENS, "other": TOKENS})


def test_a_decoders_time_goes_to_weights_attention_and_the_rest() -> None:
    rests_on = inputs(
        cost(LINEAR, 4e-6), cost(ATTENTION, 3e-6), cost(PRODUCT, 2e-6), cost(RELU, 1e-6)
    )
    whole = compose(workload(LINEAR, ATTENTION, PRODUCT, RELU), "graph", rests_on)
    assert work_shares([(1.0, whole)]) == pytest.approx(
        {"weights": 0.4, "attention": 0.3, "rest": 0.3}
    )
    linear = compose(workload(LINEAR), "graph", rests_on)
    assert work_shares([(1.0, whole), (5.0, linear)]) == pytest.approx(
        {"weights": 0.8, "attention": 0.1, "rest": 0.1}
    )
    assert set(work_shares([(1.0, replace(whole, time_s=None))]).values()) == {0.0}
    among = {"tensors": [TOKENS, {**TOKENS, "role": "weight"}]}
    chained = Configuration("matmul", {}, {**PRODUCT.inputs, **among})
    several = compose(workload(chained), "graph", inputs(cost(chained, 1e-6)))
    assert work_shares([(1.0, several)])["weights"] == 1.0
    assert work_shares([]) == {"weights": 0.0, "attention": 0.0, "rest": 0.0}


def test_an_attention_that_a_model_writes_out_is_attention() -> None:
    scores = {"shape": [1, 2, 4, 4], "dtype": "float32"}
    product = Configuration("matmul", {}, {"input": HEADS, "other": HEADS})
    softmax = Configuration("softmax", {"dim": -1}, {"input": scores})
    of_rows = Configuration("softmax", {"dim": -1}, {"input": TOKENS})
    weighed = Configuration("matmul", {}, {"input": HEADS, "other": {**HEADS, "role": "weight"}})
    calls = (product, softmax, of_rows, weighed)
    costs = [cost(call, n * 1e-6) for n, call in enumerate(calls, 1)]
    whole = compose(workload(*calls), "graph", inputs(*costs))
    assert work_shares([(1.0, whole)]) == pytest.approx(
        {"weights": 0.4, "attention": 0.3, "rest": 0.3}
    )


EXPERTS = {"shape": [8, 64, 32], "dtype": "float32", "role": "weight"}
ONE_EXPERT = {**EXPERTS, "shape": [64, 32]}
NO_WEIGHT = {"shape": [8, 64, 32], "dtype": "float32"}
CHOSEN = {"shape": [5], "dtype": "int64"}


@pytest.mark.parametrize(
    ("call", "gathers"),
    [
        (Configuration("getitem", {}, {"input": EXPERTS, "index": [CHOSEN]}), True),
        (Configuration("index_select", {}, {"input": EXPERTS, "index": [CHOSEN]}), False),
        (Configuration("getitem", {}, {"input": NO_WEIGHT, "index": [CHOSEN]}), False),
        (Configuration("getitem", {}, {"input": ONE_EXPERT, "index": [CHOSEN]}), False),
        (Configuration("getitem", {}, {"input": EXPERTS, "index": [HEADS]}), False),
        (Configuration("getitem", {}, {"input": EXPERTS, "index": 3}), False),
        (Configuration("getitem", {}, {"input": EXPERTS}), False),
    ],
)
def test_experts_are_gathered_by_a_row_of_indices_of_their_weights(
    call: Configuration, gathers: bool
) -> None:
    assert gathers_experts(call) == gathers


def test_products_with_gathered_experts_are_work_on_weights() -> None:
    gather = Configuration("getitem", {}, {"input": EXPERTS, "index": [CHOSEN]})
    one = {"shape": [5, 64, 32], "dtype": "float32"}
    product = Configuration("bmm", {}, {"input": one, "mat2": {**one, "shape": [5, 32, 64]}})
    costs = (cost(gather, 1e-6), cost(product, 3e-6), cost(RELU, 4e-6))
    with_experts = compose(workload(gather, product, RELU), "graph", inputs(*costs))
    assert work_shares([(1.0, with_experts)])["weights"] == pytest.approx(0.5)
    without = compose(workload(product, RELU), "graph", inputs(*costs))
    assert work_shares([(1.0, without)])["weights"] == 0
