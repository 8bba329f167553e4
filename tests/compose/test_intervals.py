"""Intervals: how errors of operators add, and what other models' runs teach."""

from __future__ import annotations

import math

import pytest

from opdb.compose.intervals import (
    PRIOR_MODEL_ERROR,
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


def test_before_any_run_the_prior_holds() -> None:
    assert 0.02 < model_error([]) < 0.08


def test_runs_that_agree_narrow_to_the_prior_alone_and_runs_that_do_not_widen() -> None:
    good, bad = [1.001, 0.999, 1.002] * 4, [1.2, 0.8, 1.15] * 4
    assert 2 * PRIOR_MODEL_ERROR < model_error(good) < model_error([]) < model_error(bad)
    assert model_error([1.1] * 12) > 0.15, "a bias is not fitted away"


def test_too_high_and_too_low_by_one_factor_weigh_the_same() -> None:
    assert model_error([1.1]) == pytest.approx(model_error([1 / 1.1]))
    assert math.isfinite(model_error([0.0, 1.0]))


def test_a_host_rests_on_a_prior_until_runs_tell() -> None:
    assert 0.2 < host_error([]) < 0.3
    assert 0.02 < host_error([1.01, 0.99] * 40) < 0.06
    assert host_error([1.4, 0.7] * 4) > 0.5
