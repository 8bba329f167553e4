"""Bytes of the backward pass, against what torch's own backward operators read and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opdb.kinds import get_kind
from opdb.records import Configuration
from tests.kinds.test_kinds import spec
from tests.operators.watching import Weights, watch

F = nn.functional


def backward_flops(configuration: Configuration) -> int:
    return get_kind(configuration.kind).backward_flops(configuration)


def backward_bytes(configuration: Configuration) -> int:
    return get_kind(configuration.kind).backward_bytes(configuration)


def without_input_gradients(configuration: Configuration) -> Configuration:
    """Return the same call of which no input but its weights needs a gradient."""

    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(item) for item in value]
        free = "same" not in value and value.get("role") != "weight"
        return {**value, "gradient": False} if free else value

    inputs = {name: marked(value) for name, value in configuration.inputs.items()}
    return replace(configuration, inputs=inputs)


def meta(*shape: int, **more: Any) -> Tensor:
    return torch.empty(*shape, device="meta", **{"requires_grad": True, **more})


class Traffic(TorchDispatchMode):
    """Sum the bytes that operators read and write, views and allocations left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moved = 0
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not func.is_view and "empty" not in func.__name__ and "detach" not in func.__name__:
            self.operators += 1
            tensors = [t for t in tree_leaves((args, kwargs, output)) if isinstance(t, Tensor)]
            self.moved += sum(t.nbytes for t in tensors)
        return output


X, SHUFFLED, ROW = meta(2, 6, 8, 8), meta(2, 8, 4, 4), meta(8)
WEIGHT, TABLE = meta(4, 6, 3, 3), meta(10, 16)
FLAG = torch.empty(2, 6, 8, 8, device="meta", dtype=torch.bool)

ONE_OPERATOR: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
    "conv2d": (lambda: F.conv2d(X, WEIGHT), [X, WEIGHT]),
    "conv2d, an image": (lambda: F.conv2d(X.detach(), WEIGHT), [WEIGHT]),
    "relu": (lambda: F.relu(X), [X]),
    "gelu": (lambda: F.gelu(X), [X]),
    "softmax": (lambda: F.softmax(X, -1), [X]),
    "exp": (lambda: X.exp(), [X]),
    "neg": (lambda: -X, [X]),
    "pad": (lambda: F.pad(X, (1, 1)), [X]),
    "flip": (lambda: X.flip(1), [X]),
    "to": (lambda: X.to(torch.bfloat16), [X]),
    "interpolate": (lambda: F.interpolate(X, scale_factor=2), [X]),
    "pixel_shuffle": (lambda: F.pixel_shuffle(SHUFFLED, 2), [SHUFFLED]),
    "masked_fill": (lambda: X.masked_fill(FLAG, 0.0), [X]),
    "unfold": (lambda: F.unfold(X, 3), [X]),
}
"""Calls whose backward pass is one operator that reads what it is given, and no more."""


@pytest.mark.parametrize("name", ONE_OPERATOR)
def test_bytes_are_those_of_the_one_operator(name: str) -> None:
    call, wanted = ONE_OPERATOR[name]
    configuration = watch(call, Weights([WEIGHT]))[-1]
    output = call()
    with Traffic() as traffic:
        torch.autograd.grad(output, wanted, torch.empty_like(output))
    assert traffic.operators == 1
    if all(tensor is WEIGHT for tensor in wanted):
        configuration = without_input_gradients(configuration)
    # 8 bytes a number that is a tensor of its own: what fills a masked place
    assert backward_bytes(configuration) == pytest.approx(traffic.moved, abs=8)


def test_an_input_that_was_broadcast_gets_a_sum() -> None:
    configuration = watch(lambda: X + ROW)[-1]
    assert backward_flops(configuration) == X.numel()
    assert backward_bytes(configuration) == X.nbytes + ROW.nbytes


def test_a_table_is_written_whole() -> None:
    indices = torch.empty(3, 5, device="meta", dtype=torch.int64)
    configuration = watch(lambda: F.embedding(indices, TABLE), Weights([TABLE]))[-1]
    assert backward_bytes(configuration) == 3 * 5 * 16 * 4 + indices.nbytes + TABLE.nbytes
    assert backward_flops(configuration) == 0


def test_running_statistics_get_no_gradient() -> None:
    of_channels = {
        name: spec(6, role="weight") for name in ("running_mean", "running_var", "weight", "bias")
    }
    norm = Configuration("batch_norm", {"training": True}, {"input": spec(2, 6, 4), **of_channels})
    forward = get_kind("batch_norm").bytes_moved(norm)
    assert backward_bytes(norm) == forward + 4 * (48 + 6 + 6)
    assert backward_flops(norm) == 2 * get_kind("batch_norm").flops(norm)
