"""What makes two calls one configuration, and what keeps two apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS, get_kind
from opdb.operators import (
    TensorNotes,
    build,
    describe_module,
    is_operator_module,
)
from opdb.records import Configuration
from tests.operators.watching import watch

F = nn.functional


def one(call: Callable[[], Any]) -> Configuration:
    return watch(call)[-1]


X = torch.ones(2, 6, 8, 8)
EQUAL: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "stride": (lambda: F.max_pool2d(X, 2), lambda: F.max_pool2d(X, (2, 2), stride=2)),
    "operator": (lambda: X + 1, lambda: torch.add(X, 1)),
    "reflected": (lambda: 2 * X, lambda: X * 2),
    "activation": (lambda: F.relu(X), lambda: torch.relu(X)),
    "view": (lambda: X.view(2, -1), lambda: X.view((2, 384))),
    "dimension": (lambda: X.softmax(-1), lambda: F.softmax(X, dim=3)),
    "keyword": (lambda: torch.cat([X, X], 1), lambda: torch.concat((X, X), dim=-3)),
    "flatten": (lambda: X.flatten(1), lambda: torch.flatten(X, start_dim=1, end_dim=3)),
    "cast": (lambda: X.half(), lambda: X.to(dtype=torch.float16)),
    "transpose": (lambda: X.transpose(2, 3), lambda: X.transpose(-1, -2)),
    "scale": (lambda: F.interpolate(X, scale_factor=2), lambda: F.interpolate(X, None, (2, 2))),
    "deviation": (lambda: X.std(1), lambda: torch.std(X, dim=1, unbiased=True)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_calls_are_one_configuration(name: str) -> None:
    first, second = EQUAL[name]
    assert one(first).json == one(second).json


def test_a_module_and_a_function_are_one_configuration() -> None:
    conv = nn.Conv2d(6, 4, 3, stride=2, padding=1)
    function = one(lambda: F.conv2d(X, conv.weight, conv.bias, (2, 2), 1))
    assert describe_module(conv, (X,), {}, TensorNotes()) == function
    other = one(lambda: F.conv2d(X, conv.weight.detach(), conv.bias, 2, 1))
    assert "role" not in other.inputs["weight"]


def test_what_is_an_operator_module() -> None:
    class Renamed(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)

        def extra_repr(self) -> str:
            return ""

    class Changed(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + 1

    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda m, a, o: o * 2)
    assert is_operator_module(Renamed())
    assert is_operator_module(nn.MultiheadAttention(4, 2))
    assert not is_operator_module(Changed(2, 2))
    assert not is_operator_module(hooked)
    assert not is_operator_module(parametrizations.weight_norm(nn.Linear(2, 2)))
    assert not is_operator_module(nn.Sequential(nn.ReLU()))


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration("os.system", {"command": "true"}),
        Configuration("add", {"evil": 1}, {"input": {"shape": [1], "dtype": "float32"}}),
        Configuration("add", {}, {"input": {"shape": [1], "dtype": "nothing"}}),
        Configuration("add"),
        Configuration("relu", {"input": {"shape": [1], "dtype": "float32"}}),
        Configuration("add", {}, {"input": {"same": 7}}),
        Configuration("to", {"dtype": {"import": "os"}}, {"input": {"shape": [1]}}),
    ],
)
def test_a_strangers_configuration_is_refused(configuration: Configuration) -> None:
    with pytest.raises(UnsupportedError):
        build(configuration)()


def test_every_kind_can_be_described() -> None:
    from opdb.kinds.fused import ENTRY
    from opdb.kinds.fused import NAME as FUSED
    from opdb.operators.build import SPECIAL
    from opdb.operators.call import OPTIMIZERS
    from opdb.operators.describe import FORMS
    from opdb.operators.functions import function_forms

    orphans = [
        name
        for name in KINDS
        if not function_forms()[name] and not any(form.kind == name for form in FORMS)
        if name not in SPECIAL and name not in OPTIMIZERS
        if name not in (FUSED, ENTRY)  # a compiler makes these, no call
    ]
    assert orphans == []


@pytest.mark.parametrize("wanted", ["preserve_format", "contiguous_format", "channels_last"])
@pytest.mark.parametrize(
    "shape", [(4, 8, 3, 3), (4, 8, 1, 1), (4, 1, 3, 3)], ids=["image", "vector", "one channel"]
)
@pytest.mark.parametrize("strides", ["contiguous", "channels_last", "permuted"])
def test_a_layout_that_is_there_already_gives_no_work(
    wanted: str, shape: tuple[int, ...], strides: str
) -> None:
    """A vector, or an image of one channel, lies as both formats ask."""
    tensor, asked = torch.ones(shape), getattr(torch, wanted)
    if strides == "channels_last":
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    elif strides == "permuted":
        tensor = torch.ones(shape[::-1]).permute(3, 2, 1, 0)
    calls: list[Callable[[], Tensor]] = [lambda: tensor.to(memory_format=asked)]
    if wanted != "preserve_format":
        calls.append(lambda: tensor.contiguous(memory_format=asked))
    for call in calls:
        configuration = watch(call)[-1]
        copied = call().data_ptr() != tensor.data_ptr()
        assert get_kind(configuration.kind).launches(configuration) == copied, configuration.json
