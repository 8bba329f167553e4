"""Fused groups from JSON: they come back compiled, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opdb.errors import UnsupportedError
from opdb.operators import build
from opdb.records import Configuration

SQUARE = {"shape": [4, 4], "dtype": "float32"}


def group(*nodes: dict[str, Any], inputs: list[Any] | None = None, **more: Any) -> Configuration:
    outputs = more.pop("outputs", [{"node": len(nodes) - 1, "dtype": "float32"}])
    parameters = {"nodes": list(nodes), "outputs": outputs, **more}
    text = Configuration("fused", parameters, {"inputs": inputs or [SQUARE]}).json
    return Configuration.from_json(text)


def node(op: str, *args: Any, shape: Any = (4, 4), **kwargs: Any) -> dict[str, Any]:
    found = {"op": op, "args": list(args), "shape": list(shape)}
    return {**found, "kwargs": kwargs} if kwargs else found


IN = {"input": 0}
ADD = node("aten.add.Tensor", IN, 1)


def test_a_group_computes_what_it_says() -> None:
    configuration = group(
        ADD,
        node("aten.mul.Tensor", {"node": 0}, {"input": 1}),
        node("prims.convert_element_type.default", {"node": 1}, {"dtype": "bfloat16"}),
        inputs=[SQUARE, {**SQUARE, "role": "weight"}],
        outputs=[{"node": 1, "dtype": "float32"}, {"node": 2, "dtype": "bfloat16"}],
    )
    call = build(configuration)
    [x], [weight] = call.inputs, call.weights
    first, second = call()
    torch.testing.assert_close(first, (x + 1) * weight)
    assert second.dtype == torch.bfloat16
    other = call.with_fresh_weights()
    assert other.weights[0] is not weight and other.inputs[0] is x
    torch.testing.assert_close(other()[0], first)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("aten.from_file.default", "no group may call"),
        ("aten.add_.Tensor", "no group may call"),
        ("aten.add.out", "has no operator"),
        ("aten.add.Nothing", "has no operator"),
        ("aten.add", "no group may call"),
        ("builtins.eval.default", "no group may call"),
        ("aten.add.__class__", "has no operator"),
        ("prims.rng_prims.philox", "no group may call"),
        ("", "no group may call"),
    ],
)
def test_no_other_operator_is_called(op: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        build(group(node(op, IN, IN)))


@pytest.mark.parametrize(
    "told",
    [
        group(node("aten.add.Tensor", IN, 1, shape=[4, 5])),
        group(node("aten.as_strided.default", IN, [4, 400], [4, 1], shape=[4, 400])),
        group(node("aten.as_strided.default", IN, [4, 4], [4, 1], 1, shape=[4, 4])),
        group(node("aten.as_strided.default", IN, [2, 2], [4, 1], -1, shape=[2, 2])),
        group(node("aten.add.Tensor", {"node": 7}, 1)),
        group(node("aten.add.Tensor", {"input": 3}, 1)),
        group(node("aten.add.Tensor", {"surprise": 1}, 1)),
        group(node("aten.add.Tensor")),
        group(ADD, outputs=[{"node": 9, "dtype": "float32"}]),
        Configuration("fused", {"nodes": [ADD]}, {"inputs": [SQUARE]}),
        Configuration("fused", {"nodes": 3, "outputs": []}, {"inputs": [SQUARE]}),
        Configuration("fused", {"nodes": [ADD], "outputs": []}, {"inputs": [{"shape": "x"}]}),
    ],
)
def test_what_is_no_group_is_refused(told: Configuration) -> None:
    with pytest.raises(UnsupportedError):
        build(told)


# Fused groups from a stranger that would read what is not theirs


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
