"""Configurations as numbers."""

from __future__ import annotations

import pytest

from opdb.errors import UnknownNameError
from opdb.estimates.features import KIND, features
from opdb.kinds import KINDS
from opdb.records import Configuration, Json


def tensor(*shape: int, **more: Json) -> Json:
    return {"shape": list(shape), "dtype": "float32", **more}


def conv(batch: int, channels: int, size: int, kernel: int, groups: int = 1) -> Configuration:
    weight = tensor(channels, channels // groups, kernel, kernel, role="weight")
    parameters = {"padding": [kernel // 2] * 2, **({"groups": groups} if groups > 1 else {})}
    inputs = {"input": tensor(batch, channels, size, size), "weight": weight}
    return Configuration("conv2d", parameters, inputs)


def test_a_convolution_is_the_matrix_product_that_it_comes_down_to() -> None:
    found = features(conv(4, 64, 32, 3))
    assert found.family == "convolution" and found.launches and found.dtype == "float32"
    assert 2 ** found.number("depth") == pytest.approx(64 * 9)
    assert 2 ** found.number("columns") == pytest.approx(64)
    assert 2 ** found.number("rows") == pytest.approx(4 * 32 * 32)
    assert 2 ** found.number("window") == pytest.approx(9)
    assert found.flops == 2 * 4 * 64 * 32 * 32 * 64 * 9
    assert found.number(KIND + "conv2d") == 1 and found.number(KIND + "linear") == 0


def test_a_linear_layer_too() -> None:
    inputs = {"input": tensor(8, 128, 768), "weight": tensor(3072, 768, role="weight")}
    found = features(Configuration("linear", {}, inputs))
    assert found.family == "matrix"
    assert [round(2 ** found.number(n)) for n in ("rows", "columns", "depth")] == [1024, 3072, 768]


def test_groups_show() -> None:
    depthwise = features(conv(4, 64, 32, 3, groups=64))
    assert 2 ** depthwise.number("depth") == pytest.approx(9)
    assert 2 ** depthwise.number("groups") == pytest.approx(64)


@pytest.mark.parametrize(
    ("values", "zeros"), [(None, 0.0), ("rectified", 0.5), ({"zeros": 0.9}, 0.9)]
)
def test_zeros_among_the_values_show(values: Json, zeros: float) -> None:
    spec = tensor(8, 8) if values is None else tensor(8, 8, values=values)
    assert features(Configuration("relu", {}, {"input": spec})).number("zeros") == zeros


def test_layout_and_in_place_show() -> None:
    plain = features(Configuration("relu", {}, {"input": tensor(8, 8, 4, 4)}))
    laid = tensor(8, 8, 4, 4, layout="channels_last")
    other = features(Configuration("relu", {"inplace": True}, {"input": laid}))
    differing = {n for n in plain.numbers if plain.number(n) != other.number(n)}
    assert differing == {"channels_last", "inplace"}


def test_a_view_launches_nothing() -> None:
    found = features(Configuration("flatten", {}, {"input": tensor(8, 8, 4, 4)}))
    assert not found.launches and found.moved_bytes == 0


def test_a_kind_that_this_version_lacks_is_told() -> None:
    with pytest.raises(UnknownNameError, match="convolve"):
        features(Configuration("convolve", {}, {"input": tensor(8)}))


def test_every_kind_belongs_to_a_family() -> None:
    from opdb.estimates.features import _family

    of = {name: _family(kind) for name, kind in KINDS.items()}
    assert of["conv_transpose2d"] == "convolution" and of["layer_norm"] == "memory"
    assert of["matmul"] == of["scaled_dot_product_attention"] == of["lstm"] == "matrix"
