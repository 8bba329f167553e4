"""Configurations as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from opdb.estimates.features import KIND, Features, Roofline, features, roofline
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


PLAIN = (
    *("aligned rows", "aligned columns", "aligned depth", "grouped", "depthwise", "tensors"),
    *("channels_last", "strided", "inplace", "zeros", "broadcast", "training", "gradient"),
    *("steps_apart", "autocast", "gradient_zeros", "uneven groups"),
)
"""The numbers that are no logarithms of sizes."""


def numbers(**given: float) -> Mapping[str, float]:
    """Return all numbers of a configuration; of those not given, sizes are 1 and others 0."""
    fills = ("waste 128x128", "waste 128x256", "waste 64x64", "padding columns", "padding depth")
    sizes = (
        *("flops", "bytes", "intensity", "read", "written", "weights", "rows", "columns"),
        *("depth", "tiles", "channels", "first", "second", "positions", "last", "item_bytes"),
        *("window", "stride", "dilation", "groups", "steps", "together"),
    )
    named = {name.replace("_in_", " ").replace("waste_", "waste "): v for name, v in given.items()}
    named = {
        name.replace("aligned_", "aligned ").replace("padding_", "padding "): v
        for name, v in named.items()
    }
    assert named.keys() <= {*fills, *sizes, *PLAIN}
    return {
        **{name: math.log2(named.get(name, 1.0)) for name in (*sizes, *fills)},
        **{name: named.get(name, 0.0) for name in PLAIN},
    }


def test_every_number_of_a_grouped_convolution() -> None:
    """6 images of 28 x 28, in steps of 2: 1176 positions, 400 products for each of 96 channels."""
    weight = tensor(96, 16, 5, 5, role="weight")
    found = features(
        Configuration(
            "conv2d",
            {"stride": [2, 2], "padding": [2, 2], "groups": 4},
            {"input": tensor(6, 64, 28, 28), "weight": weight},
        )
    )
    written, depth = 6 * 96 * 14 * 14, 16 * 25
    flops, moved = 2 * written * depth, 4 * (6 * 64 * 28 * 28 + 96 * 16 * 25 + written)
    assert (found.flops, found.moved_bytes) == (flops, moved)
    sizes = {"flops": flops, "bytes": moved, "intensity": flops / moved, "depth": depth}
    sizes |= {"read": 6 * 64 * 28 * 28, "written": written, "weights": 96 * 16 * 25}
    sizes |= {"rows": 6 * 14 * 14, "columns": 96, "tiles": 10, "channels": 16}
    # 10, 10 and 19 x 2 tiles of each of 4 groups, on 132 multiprocessors
    wastes = {"waste_128x128": 132 / 40, "waste_128x256": 132 / 40, "waste_64x64": 264 / 152}
    wastes |= {"padding_columns": 128 / 96, "padding_depth": 32 / 16}
    aligned = {"aligned_rows": 3.0, "aligned_columns": 4.0, "aligned_depth": 4.0, "grouped": 1.0}
    shape = {"first": 6, "second": 64, "positions": 28 * 28, "last": 28, "item_bytes": 4}
    rest = {"tensors": 2.0, "window": 25, "stride": 2, "groups": 4}
    expected = numbers(**sizes, **wastes, **aligned, **shape, **rest)
    assert dict(found.numbers) == pytest.approx(expected)


def test_an_index_stands_for_as_many_elements_as_lie_together() -> None:
    """Rows of 768 elements; single elements; and no index at all."""
    ids, table = {"shape": [4, 16], "dtype": "int64"}, tensor(1000, 768, role="weight")
    places = {"shape": [4, 8], "dtype": "int64"}
    rows = Configuration("embedding", {}, {"input": ids, "weight": table})
    elements = Configuration("gather", {"dim": 1}, {"input": tensor(4, 64), "index": places})
    of_int32 = {"shape": [40000, 1, 4], "dtype": "int32"}
    none = Configuration("add", {}, {"input": of_int32, "other": tensor(1, 3, 4)})
    found = [features(each).number("together") for each in (rows, elements, none)]
    assert found == pytest.approx([math.log2(768), 0.0, 0.0])


def test_every_number_of_a_linear_layer() -> None:
    inputs = {
        "input": tensor(24, 40),
        "weight": tensor(1000, 40, role="weight"),
        "bias": tensor(1000, role="weight"),
    }
    halves = {name: {**spec, "dtype": "bfloat16"} for name, spec in inputs.items()}
    found = features(Configuration("linear", {}, halves))
    flops, moved = 2 * 24 * 1000 * 40, 2 * (24 * 40 + 1000 * 40 + 1000 + 24 * 1000)
    sizes = {"flops": flops, "bytes": moved, "intensity": flops / moved, "depth": 40}
    sizes |= {"read": 24 * 40, "written": 24 * 1000, "weights": 1000 * 40, "channels": 40}
    sizes |= {"rows": 24, "columns": 1000, "tiles": 8}
    wastes = {"waste_128x128": 132 / 8, "waste_128x256": 132 / 4, "waste_64x64": 132 / 16}
    wastes |= {"padding_columns": 1024 / 1000, "padding_depth": 64 / 40}
    aligned = {"aligned_rows": 3.0, "aligned_columns": 3.0, "aligned_depth": 3.0}
    shape = {"first": 24, "second": 40, "last": 40, "item_bytes": 2, "tensors": 3.0}
    assert found.dtype == "bfloat16"
    assert dict(found.numbers) == pytest.approx(numbers(**sizes, **wastes, **aligned, **shape))


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


# The roofline: the best rates of made-up operators, and whose rate stands in for another's


def call(
    flops: float, moved_bytes: float, family: str = "product", dtype: str = "float32"
) -> Features:
    return Features("a kind", family, dtype, flops, moved_bytes, True, {})


def test_rates_are_nearly_the_best_and_the_shortest_time_nearly_the_least() -> None:
    """The 1 % at the top of the rates, and at the bottom of the times, may be noise."""
    seen = [(call(1e6 * n, 2e6 * n), 1.0) for n in range(1, 201)]
    found = roofline([*seen, *((call(0.0, 0.0, "memory"), 1e-3 * n) for n in range(1, 201))])
    assert found.flops_per_s == {"product float32": 199e6, "memory float32": 0.0}
    assert found.bytes_per_s == 2 * 197e6
    assert found.shortest_s == pytest.approx(5e-3)
    alone = roofline([(call(6.0, 8.0), 2.0)])
    assert alone == Roofline({"product float32": 3.0}, 4.0, 2.0, 0.5)


def test_a_time_is_the_shortest_and_the_larger_of_operations_and_bytes() -> None:
    under = Roofline({"product float32": 100.0}, 10.0, 0.5, 1.0)
    assert under.time_s(call(300.0, 10.0)) == pytest.approx(0.5 + 3.0)
    assert under.time_s(call(300.0, 40.0)) == pytest.approx(0.5 + 4.0)
    assert under.time_s(replace(call(300.0, 40.0), steps=8)) == pytest.approx(8 * 0.5 + 4.0)


@pytest.mark.parametrize(
    ("family", "dtype", "rate"),
    [
        ("product", "float32", 100.0),
        ("product", "bfloat16", 400.0),  # as the other half
        ("product", "float16", 400.0),
        ("product", "float8_e4m3fn", 400.0),  # no slower than a half
        ("attention", "float8_e5m2", 300.0),
        ("product", "float64", 100.0),  # the least of its family
        ("product backward", "float64", 80.0),
        ("attention backward", "float32", 200.0),  # as in forward passes
        ("pooling", "float32", None),  # bytes alone tell
        ("memory", "float64", 50.0),  # as any other dtype
        ("memory", "int32", 50.0),  # its own operators are short
        ("memory backward", "float32", None),
    ],
)
def test_units_that_nobody_measured_take_the_nearest_rate(
    family: str, dtype: str, rate: float | None
) -> None:
    measured = {
        "product float32": 100.0,
        "product float16": 400.0,
        "product int8": 0.0,
        "product backward float32": 80.0,
        "attention float16": 300.0,
        "attention float32": 200.0,
        "memory float32": 50.0,
        "memory int32": 1.0,
    }
    found = Roofline(measured, 10.0, 0.0, 1.0).time_s(call(1200.0, 5.0, family, dtype))
    assert found == pytest.approx(0.5 if rate is None else 1200.0 / rate)


@pytest.mark.parametrize(
    ("dtype", "family", "rate"),
    [
        ("float8_e4m3fn", "product", 400.0),
        ("float16", "product", 400.0),
        ("float32", "product", 2.0),  # nothing stands in for it
        ("float8_e4m3fn", "memory", 400.0),
    ],
)
def test_operators_that_wait_for_memory_show_no_rate(dtype: str, family: str, rate: float) -> None:
    """One row takes 2 FLOP for each byte, and the device computes 40 while it moves a byte."""
    large = (call(4000.0, 10.0, family, "bfloat16"), 10.0)
    small = (call(20.0, 10.0, family, dtype), 10.0)
    wide = (call(0.0, 100.0, "memory", "float64"), 10.0)
    found = roofline([large, small, wide])
    asked = found.time_s(call(4e6, 10.0, family, dtype)) - found.shortest_s
    assert asked == pytest.approx(4e6 / rate)
    shown = (call(2000.0, 10.0, family, dtype), 10.0)  # 20 FLOP for each byte take as long
    of_both = roofline([large, small, shown, wide])
    assert of_both.flops_per_s[f"{family} {dtype}"] == 200.0
