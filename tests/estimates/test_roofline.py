"""The roofline: the best rates of made-up operators, and whose rate stands in for another's."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opdb.estimates.features import Features, Roofline, roofline


def call(
    flops: float, moved_bytes: float, family: str = "product", dtype: str = "float32"
) -> Features:
    return Features("a kind", family, dtype, flops, moved_bytes, True, {})


def added(elements: int, kind: str = "add", broadcast: float = 1.0) -> Features:
    numbers = {"broadcast": broadcast, "written": math.log2(elements)}
    return Features(kind, "memory", "float32", 0.0, 8.0 * elements, True, numbers)


def test_rates_are_nearly_the_best_and_the_shortest_time_nearly_the_least() -> None:
    """The 1 % at the top of the rates, and at the bottom of the times, may be noise."""
    seen = [(call(1e6 * n, 2e6 * n), 1.0) for n in range(1, 201)]
    found = roofline([*seen, *((call(0.0, 0.0, "memory"), 1e-3 * n) for n in range(1, 201))])
    assert found.flops_per_s == {"product float32": 199e6, "memory float32": 0.0}
    assert found.bytes_per_s == 2 * 197e6
    assert found.shortest_s == pytest.approx(5e-3)
    alone = roofline([(call(6.0, 8.0), 2.0)])
    assert alone == Roofline({"product float32": 3.0}, 4.0, 2.0, 0.5)


def test_long_kernels_that_broadcast_show_how_many_elements_they_write() -> None:
    large = 2**20
    others = [
        (added(large // 2), 1.0),
        (added(large, "mul", 0.0), 1e-6),
        (added(large, "cat"), 1.0),
    ]
    seen = [(added(large, kind), 1.0 / n) for n in (1, 2) for kind in ("add", "mul")]
    assert roofline([*others, *seen]).broadcast_per_s == 2 * large


def test_the_kernel_that_adds_a_bias_is_set_apart() -> None:
    under = Roofline({"product float32": 100.0}, 10.0, 0.5, 4.0)
    plain, biased = call(300.0, 10.0), replace(call(300.0, 10.0), biased=8.0)
    assert (under.bias_s(plain), under.bias_s(biased)) == (0.0, 0.5 + 2.0)
    assert under.slower(plain, 7.0) == pytest.approx(math.log(2.0))
    assert under.slower(biased, 9.5) == pytest.approx(math.log(2.0))
    assert under.seconds(biased, math.log(2.0)) == pytest.approx(9.5)
    fused = under.slower(biased, 3.0)  # its own kernel would leave 0.5 s
    assert under.time_s(biased) * math.exp(fused) == pytest.approx(0.3 * 3.0)


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
