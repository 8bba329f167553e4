"""Quantities: intervals of what is positive are above 0, and as wide as they are told."""

from __future__ import annotations

import math

import pytest

from opdb.derive.boards import Factor, Factors, transferred
from opdb.derive.costs import quantity_of
from opdb.records import Cost, Quantity
from opdb.records.measurement import UNKNOWN


@pytest.mark.parametrize("relative", [0.001, 0.5, 1.0, 12.7])
def test_an_interval_is_symmetric_on_logarithms_and_keeps_its_width(relative: float) -> None:
    found = Quantity.around(2.1, 2.0, 2.0 * relative, 3)
    assert found.low is not None and found.high is not None
    assert 0 < found.low < found.mean < found.high
    assert math.sqrt(found.low * found.high) == pytest.approx(found.mean)
    assert found.half_width == pytest.approx(2.0 * relative)
    assert (found.median, found.mean, found.count) == (2.1, 2.0, 3)


def test_an_interval_that_says_nothing_is_still_of_positive_numbers() -> None:
    found = Quantity.around(1e-9, 1e-9, 1.0, 2)
    assert found.low is not None and found.high is not None
    assert found.low > 0 and found.high < math.inf
    assert math.log(found.high / found.mean) == pytest.approx(UNKNOWN)


def test_a_difference_may_lie_below_0_and_so_may_its_interval() -> None:
    assert Quantity.around(1.0, 1.0, 3.0, 2, positive=False).low == -2.0
    assert Quantity.around(-1.0, -1.0, 0.5, 2, positive=False).high == -0.5
    above = Quantity.around(1.0, 1.0, 0.5, 2, positive=False)
    assert above.low == pytest.approx(math.exp(-0.5)) and above.half_width == pytest.approx(0.5)


def test_what_takes_nothing_surely_takes_nothing() -> None:
    nothing = Quantity.around(0.0, 0.0, 0.0, 2)
    assert (nothing.low, nothing.high, nothing.half_width) == (0, 0, 0)


def test_visits_that_differ_widely_have_an_interval_above_0() -> None:
    found = quantity_of([0.03, 0.17], None)
    assert found.mean == 0.1 and found.low is not None and found.low > 0


def test_a_moved_quantity_keeps_its_half_width() -> None:
    moved = Quantity.around(1.0, 1.0, 0.9, 2).moved(-0.6)
    assert moved.mean == pytest.approx(0.4) and moved.half_width == pytest.approx(0.9)
    assert moved.low is not None and moved.low > 0
    assert Quantity.around(1.0, 1.0, None, 1).moved(1.0).half_width is None


def test_an_unsure_estimate_that_is_brought_to_another_board_stays_above_0() -> None:
    unsure = Quantity.around(20e-6, 20e-6, 30e-6, 0)
    estimate = Cost(
        configuration="key",
        board="other",
        setting="",
        estimator="estimated",
        visits=0,
        kernels=1,
        time_s=unsure,
        eager_time_s=unsure,
        power_w=None,
        energy_j=None,
        dynamic_energy_j=unsure,
    )
    by = Factors(1.0, Factor(1.1, 0.02, 6), Factor(0.9, 0.05, 6))
    brought = transferred(estimate, "this", by, 100.0)
    for held in (brought.time_s, brought.eager_time_s, brought.dynamic_energy_j):
        assert held is not None and held.low is not None and held.low > 0
        assert held.half_width is not None and held.half_width / held.mean > 1.5
