"""Configurations as numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.errors import UnknownNameError
from opdb.estimates.features import KIND, features, units
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
    of = {name: units(kind) for name, kind in KINDS.items()}
    assert of["conv_transpose2d"] == "convolution" and of["layer_norm"] == "memory"
    assert of["matmul"] == of["scaled_dot_product_attention"] == of["lstm"] == "matrix"


def test_a_backward_pass_learns_with_its_like_and_has_its_own_operations() -> None:
    forward = replace(conv(4, 64, 32, 3), gradient=True)
    gradients = [tensor(4, 64, 32, 32, values={"zeros": 0.8})]
    inputs = {**forward.inputs, "gradients": gradients}
    backward = features(replace(forward, inputs=inputs, pass_name="backward"))
    before = features(forward)
    assert (before.kind, before.family) == ("conv2d", "convolution")
    assert (backward.kind, backward.family) == ("conv2d backward", "convolution backward")
    assert backward.flops == 2 * before.flops, "a gradient of the input and one of the weight"
    assert backward.moved_bytes > before.moved_bytes
    assert backward.number("gradient_zeros") == 0.8 and before.number("gradient_zeros") == 0
    same = ("rows", "columns", "depth", "window", "positions")
    assert [backward.number(n) for n in same] == [before.number(n) for n in same]


def test_autocast_decides_what_products_are_computed_in() -> None:
    cast = features(replace(conv(4, 64, 32, 3), autocast="bfloat16"))
    assert cast.dtype == "bfloat16" and cast.number("autocast") == 1
    norm = {"input": tensor(8, 8, 4, 4), "running_mean": tensor(8), "running_var": tensor(8)}
    kept = Configuration("batch_norm", {"training": True}, norm, autocast="bfloat16")
    assert features(kept).dtype == "float32"
    assert features(kept).number("training") == 1
    assert features(Configuration("batch_norm", {}, norm)).number("training") == 0
