"""Sizes of what was measured, and of what was not, by hand-made costs."""

from __future__ import annotations

import math

import pytest

from opdb.compose.alike import DOUBT, FARTHEST, Size
from opdb.compose.sizes import shares_of, sizes_of
from opdb.records import Configuration
from tests.compose.test_composer import CONV, FULL, RELU, cost, tensor


def sized(asked: Configuration, *measured: tuple[Configuration, float, float | None]) -> Size:
    """Return the size of a configuration by these times (seconds) and energies (joules)."""
    costs = {c.key: cost(c, time_s, dynamic_j) for c, time_s, dynamic_j in measured}
    found = sizes_of([asked, *(c for c, _, _ in measured)], costs)[asked.key]
    assert found is not None
    return found


def size(
    asked: Configuration, *measured: tuple[Configuration, float, float | None]
) -> tuple[float, float]:
    """Return the time (µs) and the power above base power (W) of a configuration's size."""
    found = sized(asked, *measured)
    return found.time_s * 1e6, found.dynamic_energy_j / found.time_s if found.time_s else 0.0


SMALL, LARGE = (tensor(1 << 18), 10e-6, 1e-3), (tensor(1 << 20), 20e-6, 1e-3)
"""Copies of 1 and 4 MiB: they move 2 and 8 MiB in 10 and 20 µs, at 100 and 50 W."""


def ratio(mebibytes: int, time_us: float) -> float:
    """Return how many times as long as the rough device it took: 4 TB/s, and 2 µs a launch."""
    return time_us / (2 + (mebibytes << 20) / 4e6)


def test_what_is_nearest_says_most() -> None:
    time_us, watts = size(tensor(1 << 22), SMALL, LARGE)
    one, other = ratio(2, 10), ratio(8, 20)
    assert one < other and math.sqrt(one * other) < ratio(32, time_us) < other
    assert 50 < watts < 65, "twice as far, some quarter of the weight"
    assert size(tensor(1 << 20, 1), SMALL, LARGE)[0] == pytest.approx(20, rel=0.05)
    assert size(tensor(1 << 22, dtype="float16"), SMALL, LARGE)[0] < time_us


def test_only_the_three_nearest_count_and_another_dtype_is_farther() -> None:
    near = [(tensor(n << 20), 20e-6, 1e-3) for n in (3, 4, 5)]
    others = [(tensor(n), 900e-6, 1e-3) for n in (1, 1 << 24)]
    others.append((tensor(1 << 22, 1, dtype="int32"), 900e-6, 1e-3))
    found = sized(tensor(1 << 22, 1), *near, *others)
    assert found.time_s == pytest.approx(20e-6, rel=0.05)
    assert found.dynamic_energy_j == pytest.approx(found.time_s * 50)
    assert found.doubt < math.exp(DOUBT)
    other = sized(tensor(1 << 22, 1, dtype="int64"), *near)
    assert other.doubt == pytest.approx(math.exp(DOUBT * FARTHEST))


def test_a_kind_that_nobody_measured_is_as_fast_as_others_are() -> None:
    usual = math.sqrt(ratio(2, 10) * ratio(8, 20))
    time_us, watts = size(tensor(1 << 20, kind="sigmoid"), SMALL, LARGE)
    assert ratio(8, time_us) == pytest.approx(usual)
    assert watts == pytest.approx(75), "the median of all"
    assert size(tensor(0, kind="sigmoid"), SMALL, LARGE)[0] == pytest.approx(2 * usual)
    assert size(tensor(0, kind="sigmoid"))[0] == pytest.approx(2)
    assert size(tensor(1 << 20, kind="sigmoid"))[0] == pytest.approx(2 + (8 << 20) / 4e6)


def test_a_relu_among_convolutions_is_no_larger_than_one_of_them() -> None:
    """It does few operations and moves few bytes."""
    known = {each.configuration: each for each in FULL if each.configuration == CONV.key}
    sizes = sizes_of([RELU, CONV], known)
    relu, conv = sizes[RELU.key], sizes[CONV.key]
    assert relu is not None and conv is not None and 0 < relu.time_s <= conv.time_s
    measured = known[CONV.key].time_s
    assert measured is not None and conv.time_s == measured.mean


def test_what_was_measured_may_do_no_work_at_all() -> None:
    empty = (tensor(0), 9e-6, None)
    time_us, _ = size(tensor(1 << 20, kind="sigmoid"), empty)
    assert ratio(8, time_us) == pytest.approx(9 / 2)


def test_what_was_measured_without_power_or_time_lends_none() -> None:
    dark, bright = (tensor(1 << 18), 1e-6, None), (tensor(1 << 20, kind="sigmoid"), 20e-6, 1e-3)
    asked, none = dark[0], (tensor(4), 0.0, 1.0)
    assert size(asked, dark, bright, none) == pytest.approx((1, 50)), "the median of the others"
    assert size(asked, dark)[1] == 100, "where no power was read"
    assert size(asked, (asked, 1e-6, -1e-3))[1] == 0, "less than none is noise"
    for little, watts in ((-1e-3, 100), (0.0, 100), (5e-7, 0.5)):
        unmetered = tensor(1 << 20, kind="sigmoid")
        found = size(unmetered, (asked, 1e-6, little), (unmetered, 2e-6, None))
        assert found[1] == pytest.approx(watts)


def test_a_call_that_launches_nothing_takes_nothing() -> None:
    view = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
    assert size(view, SMALL) == (0, 0)


def test_a_kind_of_another_version_has_no_size_and_neither_has_its_model() -> None:
    tensor = {"shape": [4], "dtype": "float32"}
    foreign = Configuration("convolute", {}, {"input": tensor})
    relu = Configuration("relu", {}, {"input": tensor})
    sizes = sizes_of([foreign, relu], {})
    assert sizes[foreign.key] is None and sizes[relu.key] is not None
    assert shares_of({foreign.key: 1, relu.key: 2}, sizes, 100.0) is None
    assert shares_of({relu.key: 2}, sizes, 100.0) == {relu.key: (1.0, 1.0)}
