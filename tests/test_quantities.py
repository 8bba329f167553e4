"""Quantities: intervals of what is positive are above 0, and as wide as they are told."""

from __future__ import annotations

import math

import pytest

from opdb.records import UNKNOWN, Quantity


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


def test_a_moved_quantity_keeps_its_half_width() -> None:
    moved = Quantity.around(1.0, 1.0, 0.9, 2).moved(-0.6)
    assert moved.mean == pytest.approx(0.4) and moved.half_width == pytest.approx(0.9)
    assert moved.low is not None and moved.low > 0
    assert Quantity.around(1.0, 1.0, None, 1).moved(1.0).half_width is None
