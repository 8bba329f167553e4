"""Intervals: how errors of operators add, and what other models' runs teach."""

from __future__ import annotations

import math

import pytest

from opdb.compose.intervals import (
    ENERGY_ERROR,
    TIME_ERROR,
    ModelError,
    PeerRatio,
    host_error,
    model_error,
    shared_half_width,
    sum_half_width,
)
from opdb.derive.boards import Factor
from opdb.records import Quantity


def quantity(mean: float, width: float) -> Quantity:
    return Quantity.around(mean, mean, width, 2)


def test_errors_of_operators_add_in_squares_and_of_calls_in_line() -> None:
    assert sum_half_width([(1, quantity(1, 0.3)), (1, quantity(1, 0.4))]) == pytest.approx(0.5)
    assert sum_half_width([(10, quantity(1, 0.3))]) == pytest.approx(3.0)
    assert sum_half_width([]) == 0


def test_what_one_factor_brings_errs_alike_and_what_two_bring_apart() -> None:
    one, other = Factor(1.1, 0.02, 6), Factor(0.9, 0.03, 6)
    width = one.half_width
    assert shared_half_width([(1.0, one)] * 100) == pytest.approx(100 * width)
    both = shared_half_width([(1.0, one), (1.0, other), (5.0, None)])
    assert both == pytest.approx(math.hypot(width, 1.5 * width))
    assert shared_half_width([(1.0, Factor(1.1, None, 1))]) == 0 == shared_half_width([])


def test_a_quantity_without_an_interval_adds_none() -> None:
    assert sum_half_width([(3, Quantity(1, 1, None, None, 1))]) == 0


def peers(*ratios: float, kernel_s: float = 20e-6) -> list[PeerRatio]:
    return [PeerRatio(ratio, kernel_s) for ratio in ratios]


LONG_S, SHORT_S = 50e-6, 3e-6
"""Mean times of kernels at batch 32 and at batch 1."""


def test_sums_of_short_kernels_err_more() -> None:
    for expected in (TIME_ERROR, ENERGY_ERROR):
        long, short = expected.half_width(LONG_S), expected.half_width(SHORT_S)
        assert expected.relative < long < 1.1 * expected.relative
        assert 0.05 < short < 0.15
        assert expected.half_width(None) > short, "where it is not known, the shortest are taken"
    made = ModelError(0.03, 4e-8)
    assert made.half_width(1e-6) == pytest.approx(0.05)
    unknown = math.hypot(0.03, 0.02)  # a kernel of 2 µs
    assert made.half_width(None) == made.half_width(0.0) == pytest.approx(unknown)


def test_before_any_run_the_published_ones_hold() -> None:
    assert model_error(TIME_ERROR, LONG_S, []) == TIME_ERROR.half_width(LONG_S)


def test_runs_that_err_more_or_less_than_expected_widen_or_narrow() -> None:
    usual = TIME_ERROR.half_width(LONG_S)
    right, good = peers(*[1.0] * 12), peers(*[1.001, 0.999, 1.002] * 4)
    bad = peers(*[1.2, 0.8, 1.15] * 4)
    least = model_error(TIME_ERROR, LONG_S, right)
    assert least == pytest.approx(usual * math.sqrt(4 / 16)), "the prior's four of 16 models"
    assert least < model_error(TIME_ERROR, LONG_S, good) < 1.05 * least
    assert model_error(TIME_ERROR, LONG_S, bad) > 4 * usual
    assert model_error(TIME_ERROR, LONG_S, peers(*[1.1] * 12)) > 0.12, "a bias is not fitted away"


def test_a_width_grows_as_a_students_t_that_is_fitted_to_the_errors() -> None:
    """Four runs, each off by three times its deviation: 8 v = 4 + 4 · 5 / (4 + 9 / v) · 9."""
    off = peers(*[math.exp(3 * 0.05 / 2.776)] * 4)
    variance = (124 + math.sqrt(124**2 + 4 * 32 * 36)) / 64
    found = model_error(ModelError(0.05, 0.0), None, off)
    assert found == pytest.approx(0.05 * math.sqrt(variance), rel=1e-6)


def test_an_error_is_held_against_what_its_kernels_let_expect() -> None:
    long, short = peers(*[1.06] * 6, kernel_s=LONG_S), peers(*[1.06] * 6, kernel_s=SHORT_S)
    wide, usual = (model_error(TIME_ERROR, LONG_S, each) for each in (long, short))
    assert wide > 1.5 * usual


def test_one_run_far_out_widens_little() -> None:
    usual = model_error(TIME_ERROR, LONG_S, peers(*[1.01] * 11))
    once = model_error(TIME_ERROR, LONG_S, peers(*[1.01] * 11, 1.5))
    assert usual <= once < 1.3 * usual


def test_too_high_and_too_low_by_one_factor_weigh_the_same() -> None:
    high, low = (model_error(TIME_ERROR, LONG_S, peers(each)) for each in (1.1, 1 / 1.1))
    assert high == pytest.approx(low)
    assert math.isfinite(model_error(TIME_ERROR, LONG_S, peers(0.0, 1.0)))


def test_a_host_rests_on_a_prior_until_runs_tell() -> None:
    assert host_error([]) == pytest.approx(2.776 * 0.1)
    once = math.sqrt((4 * 0.01 + math.log(1.3) ** 2) / 5)
    for ratios in ([1.3], [1 / 1.3], [1.3, 0.0]):
        assert host_error(ratios) == pytest.approx(2.571 * once)
    assert 0.02 < host_error([1.01, 0.99] * 40) < 0.06
    assert host_error([1.4, 0.7] * 4) > 0.5
