"""What an estimator of made-up processes says: what stands in, how wide, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from opdb.errors import InputError
from opdb.estimates.estimator import (
    Covariance,
    Estimates,
    Estimator,
    KindMedians,
    Learned,
    Process,
    Trend,
    Widths,
    _Covariances,
    unit_of,
)
from opdb.estimates.features import Roofline
from opdb.records import OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE, Configuration, Quantity
from tests.estimates.made import call, example

REACH = Widths(time=2.0, energy=2.5)
SUMS = Widths(3.0, 3.5)
ROOFLINE = Roofline({"memory float32": 1e12, "matrix float32": 1e13}, 1e9, 1e-6, 1e8)
ALWAYS = Trend((0.0,), (0.0,))
"""Nothing is usual: what a process says is said of all."""


def process(mean: float, variance: float = 0.5, noise: float = 0.01) -> Process:
    """A process in the logarithm of the batch, of which 2^10 alone is known: by 0.2 above."""
    kernel = Covariance(variance, (1.0,), noise)
    return Process.through(kernel, mean, np.zeros((1, 1)), np.array([mean + 0.2]))


def learned(power: bool = True, **changes: object) -> Learned:
    of = Learned(
        columns=("first",),
        centre=(10.0,),
        scale=(2.0,),
        levels={"relu": 0.3, "add": -0.5},
        slower=ALWAYS,
        watts=ALWAYS if power else None,
        dtypes=frozenset({"float32"}),
        time=process(0.7),
        power=process(math.log(100.0), variance=0.2) if power else None,
        metered=(0,) if power else (),
        reach=REACH if power else replace(REACH, energy=None),
    )
    return replace(of, **changes)  # type: ignore[arg-type]


def estimator(**families: Learned) -> Estimator:
    usual = {"relu": KindMedians(3, 5e-6, {"module": Quantity(1.0, 1.0, 0.5, 2.0, 9)})}
    return Estimator("a device", "a board", "2026-11-25", 12, ROOFLINE, families, usual, SUMS)


def widths(quantity: Quantity | None) -> tuple[float, float]:
    """Return by how much the ends lie below and above, in logarithms."""
    return math.log(quantity.mean / quantity.low), math.log(quantity.high / quantity.mean)


def test_an_estimate_is_the_roofline_times_what_was_learned() -> None:
    asked = call(2**10)
    moved_s = 2 * 2**10 * 64 * 4 / 1e9
    [cost] = estimator(memory=learned()).estimate([asked]).costs.values()
    nearness = 0.5 / 0.51
    time_s = (1e-6 + moved_s) * math.exp(0.7 + 0.2 * nearness + 0.3)
    assert cost.time_s.mean == pytest.approx(time_s)
    assert cost.time_s.median == cost.time_s.mean and cost.time_s.count == 0
    watts = 100.0 * math.exp(0.2 * 0.2 / 0.21)
    assert cost.dynamic_energy_j.mean == pytest.approx(watts * time_s)
    time_variance = 0.51 - 0.5 * nearness
    power_variance = 0.21 - 0.2 * 0.2 / 0.21
    width, energy_width = 2.0 * time_variance**0.5, 2.5 * (time_variance + power_variance) ** 0.5
    assert widths(cost.time_s) == pytest.approx((width, width))
    assert widths(cost.dynamic_energy_j) == pytest.approx((energy_width, energy_width))
    assert cost.eager_time_s.mean == pytest.approx(time_s + 5e-6)
    assert (cost.kernels, cost.visits, cost.power_w, cost.energy_j) == (3, 0, None, None)
    assert (cost.board, cost.setting, cost.flags) == ("a board", "", ("estimated",))
    assert cost.host_time_s["module"].count == 9


def test_what_lies_far_off_rests_on_the_roofline() -> None:
    """Half a length from the known point 40 % of the variance are unexplained, at 1.5 90 %."""
    near, far = call(2**11), call(2**13)
    both = estimator(memory=learned())
    found = both.estimate([near, far])
    assert found.costs[near.key].flags == ("estimated",)
    assert found.costs[far.key].flags == ("estimated", ROOFLINE_ALONE)
    assert found.doubtful == 1 and not found.refused
    [of_block] = found.blocks
    assert of_block.keys == [near.key, far.key]
    assert widths(found.costs[near.key].time_s) < widths(found.costs[far.key].time_s)
    noisy = estimator(memory=learned(time=process(0.7, noise=0.2)))
    [cost] = noisy.estimate([call(2**10)]).costs.values()
    assert cost.flags == ("estimated",), "noise is no distance"


def test_a_kind_or_dtype_never_measured_widens_and_is_flagged() -> None:
    levels = {"relu": 0.9, "add": -0.5}
    known = learned(levels=levels, dtypes=frozenset({"float32"}))
    assert known.kind_variance == pytest.approx((0.81 + 0.25) / 2)
    assert learned(levels={"relu": 0.1}).kind_variance == pytest.approx(0.09), "the least"
    assert learned(levels={"relu": 0.9}).kind_variance == pytest.approx(0.81)
    assert learned(levels={}).kind_variance == pytest.approx(0.09)
    found = estimator(memory=known).estimate(
        [call(2**10), call(2**10, "softmax"), call(2**10, dtype="int32")]
    )
    plain, kind, dtype = found.costs.values()
    assert kind.flags == ("estimated", OTHER_KINDS)
    assert dtype.flags == ("estimated", OTHER_DTYPE)
    variance = (widths(plain.time_s)[0] / 2.0) ** 2
    assert widths(kind.time_s)[0] == pytest.approx(2.0 * math.sqrt(variance + 0.53))
    assert widths(dtype.time_s)[0] == pytest.approx(2.0 * math.sqrt(variance + 0.01))
    two = estimator(memory=known).estimate([call(2**10, "softmax"), call(2**9, "softmax")])
    assert two.blocks[0].time[0, 1] > 0.53, "calls of one unknown kind err together"
    apart = estimator(memory=known).estimate([call(2**10, "softmax"), call(2**10, "gelu")])
    assert apart.blocks[0].time[0, 1] < 0.53


def test_what_has_no_roofline_is_refused_however_it_is_asked_for() -> None:
    update = Configuration("sgd", {}, {"params": []}, pass_name="update")
    found = estimator(memory=learned()).estimate([update, call(8, "convolve"), call(8)])
    assert found.costs.keys() == {call(8).key}
    assert found.refused == {
        update.key: "estimates are of forward and backward passes",
        call(8, "convolve").key: "this version has no kind 'convolve'",
    }


def test_what_is_damaged_is_one_message() -> None:
    for damaged in (
        learned(time=process(800.0)),
        learned(time=process(-800.0)),
        learned(time=process(math.nan)),
        learned(columns=("no such number",)),
    ):
        with pytest.raises(InputError, match="damaged estimates of memory operators, learned on a"):
            estimator(memory=damaged).estimate([call(8)])


def test_a_sum_errs_by_its_parts_together() -> None:
    """Its mean and variance are those of sums of drawn times whose logarithms have a covariance."""
    ones = np.array([[0.04, 0.02], [0.02, 0.09]])
    watts = np.array([[0.01, 0.0], [0.0, 0.01]])
    block = _Covariances(["a", "b"], ones, watts, REACH)
    other = _Covariances(["c"], np.array([[0.25]]), np.array([[0.16]]), REACH)
    examples = {
        name: example(call(8), seconds, dynamic_w=power).cost
        for name, seconds, power in (("a", 2.0, 10.0), ("b", 1.0, 20.0), ("c", 3.0, 5.0))
    }
    found = Estimates("a board", SUMS, examples, {}, [block, other])
    all_three = found.sum_of({"a": 3.0, "b": 4.0, "c": 2.0}, 50.0)
    assert (all_three.time_s, all_three.energy_j) == pytest.approx((16.0, 170.0 + 50.0 * 16.0))
    joint = np.zeros((3, 3))
    joint[:2, :2], joint[2, 2] = ones, 0.25
    drawn = np.random.default_rng(1).multivariate_normal(np.zeros(3), joint, size=400_000)
    sums = np.exp(drawn) @ np.array([6.0, 4.0, 6.0])
    seen = math.sqrt(math.log1p(sums.var() / sums.mean() ** 2))
    assert all_three.deviation == pytest.approx(seen, rel=0.01)
    half_s, half_j = found.half_widths({"a": 3.0, "b": 4.0, "c": 2.0}, 50.0)
    assert half_s == pytest.approx(3.0 * unit_of(all_three.deviation) * 16.0)
    assert half_j == pytest.approx(3.5 * unit_of(all_three.deviation) * 970.0)
    one, without_base = found.half_widths({"c": 2.0}, None)
    assert one == pytest.approx(3.0 * 0.5**0.7 * 6.0) and without_base is None
    assert Estimates("a board", SUMS).half_widths({}, 50.0) == (0.0, 0.0)


def test_the_width_of_a_sum_grows_with_a_power_of_its_deviation() -> None:
    asked = {call(2**10 + 64).key: 2.0, call(2**12).key: 1.0}
    narrowed = replace(estimator(memory=learned()), sums=Widths(1.2, 0.8))
    found = narrowed.estimate([call(2**10 + 64), call(2**12)])
    before = estimator(memory=learned()).estimate([call(2**10 + 64), call(2**12)])
    assert found.costs == before.costs, "of single operators nothing changes"
    whole = found.sum_of(asked, 100.0)
    half_s, half_j = found.half_widths(asked, 100.0)
    assert half_s / whole.time_s == pytest.approx(1.2 * whole.deviation**0.7)
    assert half_j / whole.energy_j == pytest.approx(0.8 * whole.deviation**0.7)
    unmetered = replace(found, sums=Widths(1.2, None))
    assert unmetered.half_widths(asked, 100.0) == (half_s, None)
    assert unit_of(0.0) == 0.0
