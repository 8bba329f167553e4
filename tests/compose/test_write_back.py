"""What the L2 writes back while weights stream in: on passes made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opdb.compose import PredictionInputs, compose
from opdb.compose.calls import Pass, timed_pass
from opdb.compose.write_back import Traffic, written_back
from opdb.footprint import resident_bytes
from opdb.records import Configuration, Mode
from tests.compose.test_composer import GPU, cost, inputs, workload
from tests.store import samples

KEPT = 30_000_000.0
COPY = Traffic(weights=0, inputs=4_000_000, output=8_000_000)
PRODUCT = Traffic(weights=100_000_000, inputs=0, output=0)


def test_what_streaming_weights_push_out_is_written_back() -> None:
    assert written_back([COPY, PRODUCT], [0, 1], KEPT) == [0.0, 8_000_000.0]
    assert written_back([COPY, PRODUCT], [0, 0, 1], KEPT) == [0.0, 16_000_000.0]


def test_it_is_the_mean_of_a_calls_occurrences() -> None:
    assert written_back([COPY, PRODUCT], [0, 1, 1], KEPT) == [0.0, 4_000_000.0]


def test_what_one_call_pushed_out_no_other_does() -> None:
    assert written_back([COPY, PRODUCT, PRODUCT], [0, 1, 2], KEPT) == [0.0, 8_000_000.0, 0.0]


def test_an_output_overwritten_in_time_is_not_written_back() -> None:
    small = replace(PRODUCT, weights=2_000_000)
    assert written_back([COPY, small], [0, 1], KEPT) == [0.0, 0.0]  # two outputs, 20 MB in all
    assert written_back([COPY, small], [0, 1], 15e6)[1] > 0


def test_no_more_is_dirty_than_the_l2_keeps() -> None:
    large = replace(COPY, output=67_000_000)
    assert written_back([large, PRODUCT], [0, 1], KEPT)[1] == KEPT


def test_a_call_pushes_out_no_more_than_it_brings_in() -> None:
    large = replace(COPY, output=67_000_000)
    product = replace(PRODUCT, weights=10_000_000)
    assert written_back([large, product], [0, 1], KEPT)[1] == 10_000_000.0


def test_inputs_that_the_l2_cannot_hold_push_out_what_is_dirty() -> None:
    held, too_large = (
        Traffic(weights=0, inputs=size, output=0) for size in (30_000_000, 134_000_000)
    )
    assert written_back([COPY, held, PRODUCT], [0, 1, 2], KEPT)[2] == 8_000_000.0
    assert written_back([COPY, too_large, PRODUCT], [0, 1, 2], KEPT)[2] == 0.0


def test_what_a_call_alone_writes_back_is_not_added_again() -> None:
    writing = replace(PRODUCT, output=8_000_000)
    assert written_back([writing], [0, 0, 0], KEPT) == [0.0]
    assert written_back([writing, PRODUCT], [0, 1], KEPT) == [-8_000_000.0, 8_000_000.0]


def test_an_output_that_the_l2_cannot_hold_is_written_back_alone_as_well() -> None:
    gather = Traffic(weights=805_000_000, inputs=0, output=3_221_000_000)  # a weight for each row
    assert written_back([gather], [0, 0], KEPT) == [0.0]
    assert written_back([COPY, gather], [0, 1, 1], KEPT) == [8_000_000.0, 0.0]


def linear(size: int, rows: int = 1) -> Configuration:
    return Configuration(
        "linear",
        inputs={
            "input": {"shape": [rows, size], "dtype": "bfloat16"},
            "weight": {"shape": [size, size], "dtype": "bfloat16", "role": "weight"},
        },
    )


CLONE = Configuration("clone", inputs={"input": {"shape": [4_000_000], "dtype": "bfloat16"}})
LINEAR = linear(8192)  # 134 MB of weights
RATE, CLONE_S, LINEAR_S = 4e12, 5e-6, 35e-6


def found(**changes: Any) -> PredictionInputs:
    costs = cost(CLONE, CLONE_S, 1e-3), cost(LINEAR, LINEAR_S, 1e-3)
    known = {"resident_bytes": KEPT, "memory_rate": RATE}
    return inputs(*costs, **(known | changes))


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_pass_takes_the_bytes_over_the_memorys_rate_longer(mode: Mode) -> None:
    [clone, product] = timed_pass(Pass(workload(CLONE, LINEAR)), mode, found()).calls
    assert clone.transition_s == 0.0
    assert product.transition_s == pytest.approx(8e6 / RATE)


def test_base_power_flows_meanwhile() -> None:
    whole = compose(workload(CLONE, LINEAR), "graph", found())
    assert whole.time_s == pytest.approx(CLONE_S + LINEAR_S + 8e6 / RATE)
    assert whole.energy_j == pytest.approx(100.0 * (CLONE_S + LINEAR_S + 8e6 / RATE) + 2e-3)


def test_a_product_below_half_of_the_memorys_rate_hides_it() -> None:
    slow = cost(LINEAR, 2.1 * 134e6 / RATE)
    inputs_ = found(costs={**found().costs, LINEAR.key: slow})
    assert timed_pass(Pass(workload(CLONE, LINEAR)), "graph", inputs_).transition_s == 0.0


def test_what_a_slow_product_hides_no_other_pays() -> None:
    fast = linear(8000)
    slow = cost(LINEAR, 2.1 * 134e6 / RATE)
    costs = {**found().costs, LINEAR.key: slow, fast.key: cost(fast, LINEAR_S)}
    inputs_ = found(costs=costs)
    assert timed_pass(Pass(workload(CLONE, LINEAR, fast)), "graph", inputs_).transition_s == 0.0


@pytest.mark.parametrize(
    "unknown",
    [
        {"memory_rate": None},
        {"resident_bytes": resident_bytes(samples.PROCESSOR)},
        {"resident_bytes": resident_bytes(GPU)},
    ],
)
def test_nothing_is_added_where_rate_or_l2_is_unknown(unknown: dict[str, Any]) -> None:
    pass_ = Pass(workload(CLONE, LINEAR))
    assert timed_pass(pass_, "graph", found(**unknown)).transition_s == 0.0


def test_a_pass_that_the_l2_keeps_writes_nothing_back() -> None:
    pass_ = Pass(workload(CLONE, LINEAR))
    less, more = pass_.touched_bytes - 1.0, pass_.touched_bytes + 1.0
    paid = (
        timed_pass(pass_, "graph", found(resident_bytes=kept)).transition_s for kept in (less, more)
    )
    assert list(paid) == [pytest.approx(8e6 / RATE), 0.0]


def test_a_training_step_writes_to_fresh_memory_and_pays_nothing() -> None:
    pass_ = Pass(workload(CLONE, LINEAR, phase="training"))
    assert timed_pass(pass_, "graph", found()).transition_s == 0.0
