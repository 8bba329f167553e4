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
    NoNotes,
    build,
    describe_function,
    describe_module,
    is_metadata,
    is_operator_module,
)
from opdb.records import Configuration
from tests.operators.watching import Weights, watch

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


def test_in_place_is_the_same_kind() -> None:
    a, b = one(lambda: X.clone().relu_()), one(lambda: F.relu(X.clone(), inplace=True))
    assert a == b
    assert a.kind == "relu"
    assert a.parameters == {"inplace": True}
    assert describe_module(nn.ReLU(inplace=True), (X,), {}, NoNotes()) == a


def test_identity_of_arguments_is_kept() -> None:
    y = torch.ones_like(X)
    assert one(lambda: X + X).inputs["other"] == {"same": 0}
    assert one(lambda: X + y) != one(lambda: X + X)
    assert one(lambda: X + X.view(2, 6, 8, 8)) == one(lambda: X + X)
    assert one(lambda: X + X[:1]) != one(lambda: X + X)


def test_a_module_and_a_function_are_one_configuration() -> None:
    conv = nn.Conv2d(6, 4, 3, stride=2, padding=1)
    function = one(lambda: F.conv2d(X, conv.weight, conv.bias, (2, 2), 1))
    assert describe_module(conv, (X,), {}, NoNotes()) == function
    other = one(lambda: F.conv2d(X, conv.weight.detach(), conv.bias, 2, 1))
    assert "role" not in other.inputs["weight"]


def test_layouts() -> None:
    def layout(tensor: Tensor) -> Any:
        return one(lambda: torch.exp(tensor)).inputs["input"].get("layout")

    assert layout(X) is None
    assert layout(X.to(memory_format=torch.channels_last)) == "channels_last"
    assert layout(torch.ones(1, 2, 3, 4, 5).to(memory_format=torch.channels_last_3d)) == (
        "channels_last"
    )
    assert layout(torch.ones(3, 1, 5).transpose(0, 1)) is None
    assert layout(torch.ones(3, 5).t()) == [1, 5]
    assert layout(torch.ones(5).expand(3, 5)) == [0, 1]


def test_evaluation_drops_what_it_does_not_use() -> None:
    norm = describe_module(nn.BatchNorm2d(6, momentum=0.01).eval(), (X,), {}, NoNotes())
    assert norm.parameters == {}
    dropout = describe_module(nn.Dropout(0.3).eval(), (X,), {}, NoNotes())
    assert dropout == one(lambda: F.dropout(X, 0.7, training=False))
    assert not get_kind("dropout").launches(dropout)


def test_value_classes_are_kept() -> None:
    notes = Weights([], {id(X): "rectified"})
    seen = watch(lambda: F.max_pool2d(X, 2), notes)[-1]
    assert seen.inputs["input"]["values"] == "rectified"
    assert get_kind("max_pool2d").output_values(seen) == "rectified"
    built = build(seen)
    assert built.inputs[0].min() == 0
    assert built.inputs[0].max() > 0


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


def test_what_is_metadata() -> None:
    assert is_metadata(Tensor.shape.__get__)  # type: ignore[attr-defined]
    assert is_metadata(Tensor.size)
    assert is_metadata(torch.is_floating_point)
    assert not is_metadata(Tensor.__bool__)
    assert not is_metadata(torch.add)


def test_what_cannot_be_described_says_so() -> None:
    with pytest.raises(UnsupportedError, match="Tensor"):
        describe_function(Tensor.apply_, (X, abs), {}, NoNotes())
    with pytest.raises(UnsupportedError, match="out="):
        describe_function(torch.add, (X, X), {"out": X}, NoNotes())


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


def test_mutated_inputs_are_named() -> None:
    built = build(one(lambda: X.clone().add_(torch.ones(8))))
    assert built.mutated == (0,)
    before = built.inputs[0].clone()
    built()
    assert not torch.equal(before, built.inputs[0])
    assert build(one(lambda: X + 1)).mutated == ()


def test_the_same_seed_makes_the_same_data() -> None:
    configuration = one(lambda: X + torch.ones(8))
    first, second = build(configuration, seed=3), build(configuration, seed=3)
    assert torch.equal(first(), second())
    assert not torch.equal(first(), build(configuration, seed=4)())


def test_strides_come_back() -> None:
    built = build(one(lambda: torch.exp(X.transpose(1, 3))))
    assert built.inputs[0].stride() == X.transpose(1, 3).stride()


def test_every_kind_can_be_described() -> None:
    from opdb.kinds.fused import ENTRY
    from opdb.kinds.fused import NAME as FUSED
    from opdb.operators.build import SPECIAL
    from opdb.operators.call import OPTIMIZERS
    from opdb.operators.describe import forms_of_kind
    from opdb.operators.functions import forms_by_kind

    orphans = [
        name
        for name in KINDS
        if not forms_by_kind().get(name) and not forms_of_kind(name)
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
