"""Fused groups from a stranger that would read what is not theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opdb.errors import UnsupportedError
from opdb.operators import build
from opdb.records import Configuration
from tests.compiled.test_fused import IN, SQUARE, group, node

BY = {"input": 1}
LAST = {"node": 0}
ROW = [3, 4]


def indices(low: int, high: int, *shape: int) -> list[Any]:
    return [
        SQUARE,
        {"shape": list(shape or (3,)), "dtype": "int64", "values": {"range": [low, high]}},
    ]


def made(value: int) -> dict[str, Any]:
    told = {"dtype": {"dtype": "int64"}, "device": {"device": True}}
    return node("aten.full.default", [3], value, shape=[3], **told)


WIDE = node("aten.expand.default", IN, [1000, 4, 4], shape=[1000, 4, 4])
BYTES = node("aten.view.dtype", IN, {"dtype": "int8"}, shape=[4, 16])
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"


@pytest.mark.parametrize(
    "told",
    [
        group(WIDE, node("aten.as_strided.default", LAST, [1000], [1], shape=[1000])),
        group(BYTES, node("aten.as_strided.default", LAST, [64], [1], shape=[64])),
        group(node("aten._unsafe_index.Tensor", IN, [BY], shape=ROW), inputs=indices(9, 99)),
        group(
            node("aten._unsafe_index.Tensor", IN, [None, BY], shape=[4, 3]), inputs=indices(0, 5)
        ),
        group(made(10**9), node("aten._unsafe_index.Tensor", IN, [LAST], shape=ROW)),
        group(made(-1), node("aten._unsafe_index.Tensor", IN, [LAST], shape=ROW)),
        group(node("aten.index.Tensor", IN, [BY], shape=ROW), inputs=indices(0, 5)),
        group(made(-5), node("aten.index.Tensor", IN, [LAST], shape=ROW)),
        group(node("aten.embedding.default", IN, BY, shape=ROW), inputs=indices(-1, 4)),
        group(node("aten.gather.default", IN, 1, BY), inputs=indices(0, 5, 4, 4)),
        group(node("aten.scatter.src", IN, 0, BY, IN), inputs=indices(0, 5, 4, 4)),
        group(
            node(ATTENTION, IN, IN, BY, shape=[[1, 1, 4, 4], [1, 1, 4]]),
            node("getitem", LAST, 0, shape=[1, 1, 4, 4]),
            inputs=[{**SQUARE, "shape": [1, 1, 4, 4]}, {**SQUARE, "shape": [1, 1, 1, 4]}],
        ),
    ],
)
def test_what_looks_beyond_its_tensors_is_refused(told: Configuration) -> None:
    with pytest.raises(UnsupportedError, match="looks beyond the tensor"):
        build(told)


def test_what_stays_within_is_read() -> None:
    unsafe = node("aten._unsafe_index.Tensor", IN, [LAST], shape=ROW)
    call = build(group(made(2), unsafe))
    torch.testing.assert_close(call()[0], call.inputs[0][[2, 2, 2]])
    call = build(group(made(-3), node("aten.index.Tensor", IN, [LAST], shape=ROW)))
    torch.testing.assert_close(call()[0], call.inputs[0][[1, 1, 1]])
    call = build(
        group(node("aten.index.Tensor", IN, [None, BY], shape=[4, 3]), inputs=indices(0, 4))
    )
    torch.testing.assert_close(call()[0], call.inputs[0][:, call.inputs[1]])


def test_indices_that_are_computed_from_inputs_are_looked_up_with_a_check() -> None:
    times = node("aten.mul.Tensor", BY, 10**8, shape=[3])
    unsafe = node("aten._unsafe_index.Tensor", IN, [LAST], shape=ROW)
    with pytest.raises(RuntimeError, match="out of bounds"):
        build(group(times, unsafe, inputs=indices(1, 2)))()


def test_what_hangs_together_in_many_ways_is_read_once() -> None:
    chain = [made(0)]
    for place in range(60):
        chain.append(node("aten.add.Tensor", {"node": place}, {"node": place}, shape=[3]))
    unsafe = node("aten._unsafe_index.Tensor", IN, [{"node": 60}], shape=ROW)
    assert build(group(*chain, unsafe), device="meta").bare is not None


def test_operators_are_told_words_alone() -> None:
    with pytest.raises(UnsupportedError, match="no operator takes"):
        build(group(node("aten.div.Tensor_mode", IN, IN, rounding_mode='floor"; x')))


def test_whole_numbers_are_divided_by_no_zero() -> None:
    whole = {"shape": [64], "dtype": "int64"}
    divided = node("aten.div.Tensor_mode", IN, BY, shape=[64], rounding_mode="floor")
    [found] = build(group(divided, inputs=[whole, whole]))()
    assert set(found.tolist()) == {0, 1}
