from __future__ import annotations

from collections import Counter
from itertools import combinations, islice

import pytest

from opdb.grid import Reference, resolved, spread_points, spread_range
from opdb.records import Json


@pytest.mark.parametrize(
    ("low", "high", "step", "factor", "expected"),
    [
        (1, 4, 1, None, [1, 2, 3, 4]),
        (7, 30, 7, None, [7, 14, 21, 28]),
        (16, 128, None, 2, [16, 32, 64, 128]),
        (16, 100, None, 2, [16, 32, 64]),
        (10, 100, None, 1.5, [10, 15, 22, 34, 51, 76]),
        (1, 4, None, 1.2, [1, 2, 3, 4]),
        (5, 5, 1, None, [5]),
        (0, 1, 0.25, None, [0, 0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_ranges(
    low: float, high: float, step: float | None, factor: float | None, expected: list[Json]
) -> None:
    found = spread_range(low, high, step=step, factor=factor)
    assert found == expected
    if all(isinstance(end, int) for end in (low, high)) and not isinstance(step, float):
        assert all(isinstance(value, int) for value in found)


def test_references_follow_one_another() -> None:
    axes: dict[str, list[Json]] = {
        "channels": [8, [4, 6]],
        "out": [Reference("channels", times=3, divided_by=2)],
        "groups": [1, Reference("out")],
        "text": ["same"],
    }
    assert resolved(axes, (0, 0, 1, 0)) == {
        "channels": 8,
        "out": 12,
        "groups": 12,
        "text": "same",
    }
    assert resolved(axes, (1, 0, 1, 0))["groups"] == [6, 9]


def test_what_is_no_whole_number_is_not_multiplied() -> None:
    axes: dict[str, list[Json]] = {"a": ["x"], "b": [Reference("a", times=2)]}
    with pytest.raises(ValueError, match="a is 'x', not a whole number"):
        resolved(axes, (0, 0))
    assert resolved({**axes, "b": [Reference("a")]}, (0, 0))["b"] == "x"


SIZES = (7, 7, 4, 2, 1, 4, 6, 3)


def test_a_sample_is_spread_over_every_axis_and_every_pair() -> None:
    drawn = list(islice(spread_points(SIZES), 420))
    assert len(set(drawn)) == 420
    for axis, size in enumerate(SIZES):
        counts = Counter(point[axis] for point in drawn)
        assert all(abs(counts[level] * size / 420 - 1) < 0.1 for level in range(size))
    for one, other in combinations(range(len(SIZES)), 2):
        met = {(point[one], point[other]) for point in drawn}
        assert len(met) == SIZES[one] * SIZES[other], "every pair of levels is met"


EXPECTED = [(5, 0, 3, 1, 0, 2, 1, 1), (1, 2, 0, 1, 0, 2, 0, 1), (6, 4, 0, 1, 0, 3, 3, 0)]


def test_a_sample_is_the_same_everywhere() -> None:
    assert list(islice(spread_points(SIZES), 3)) == EXPECTED
