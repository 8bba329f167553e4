"""Ranges of quantities: what they hold, ends included."""

from __future__ import annotations

import math

import pytest

from opdb.store import fields
from opdb.store.fields import Range

ENDS = {
    "DURATION_S": (0.0, 1e8),
    "POWER_W": (0.0, 1e6),
    "ENERGY_J": (0.0, 1e12),
    "CLOCK_HZ": (0.0, 1e12),
    "COUNT": (0.0, 1e12),
    "POSITIVE_COUNT": (1.0, 1e12),
    "DIFFERENCE_S": (-1e8, 1e8),
    "DIFFERENCE_W": (-1e6, 1e6),
    "DIFFERENCE_J": (-1e12, 1e12),
    "SHARE": (0.0, 1.01),
    "TEMPERATURE_C": (-200.0, 1000.0),
}
MOST_OF_POSITIVE = {
    "POSITIVE_S": 1e8,
    "POSITIVE_W": 1e6,
    "POSITIVE_HZ": 1e12,
    "POSITIVE_BYTES": 1e18,
    "POSITIVE_SHARE": 1.01,
}
BY_NAME = {name: value for name, value in vars(fields).items() if isinstance(value, Range)}


def refused(held: Range, value: float) -> bool:
    try:
        held.check(value)
    except ValueError:
        return True
    return False


def test_a_range_holds_its_ends_and_nothing_beyond() -> None:
    for name, (low, high) in ENDS.items():
        held = BY_NAME[name]
        assert not refused(held, low) and not refused(held, high), name
        assert refused(held, math.nextafter(low, -math.inf)), name
        assert refused(held, math.nextafter(high, math.inf)), name


def test_what_is_positive_may_be_as_little_as_can_be_but_not_nothing() -> None:
    for name, high in MOST_OF_POSITIVE.items():
        held = BY_NAME[name]
        assert not refused(held, 5e-324) and not refused(held, high), name
        assert refused(held, 0.0) and refused(held, math.nextafter(high, math.inf)), name
    assert BY_NAME.keys() == ENDS.keys() | MOST_OF_POSITIVE.keys()


def test_a_range_says_what_it_allows() -> None:
    with pytest.raises(ValueError, match=r"^out of range; allowed: more than 0, 1e\+06 at most$"):
        fields.POSITIVE_W.check(0.0)
    with pytest.raises(ValueError, match=r"^out of range; allowed: -200 to 1000$"):
        fields.TEMPERATURE_C.check(math.nan)


def test_numbers_together_are_checked_by_the_least_and_the_most() -> None:
    for good in ([], [0.0], (1.01, 0.0), iter([0.5, 1.0])):
        fields.SHARE.check_all(good)
    for bad in ([0.5, 2.0], [-0.1, 0.5], iter([0.5, -1.0])):
        with pytest.raises(ValueError, match="out of range"):
            fields.SHARE.check_all(bad)
