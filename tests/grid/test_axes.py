from __future__ import annotations

from collections import Counter
from itertools import combinations, islice

import pytest

from opdb.grid import Reference, points, reference_order, resolved, spread_points, spread_range
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


def test_references_follow_one_another_in_any_order() -> None:
    axes: dict[str, list[Json]] = {
        "groups": [1, Reference("out")],
        "out": [Reference("channels", times=3, divided_by=2)],
        "channels": [8, [4, 6]],
        "text": ["same"],
    }
    order = reference_order(axes)
    assert resolved(axes, order, (1, 0, 0, 0)) == {
        "groups": 12,
        "out": 12,
        "channels": 8,
        "text": "same",
    }
    assert resolved(axes, order, (1, 0, 1, 0))["groups"] == [6, 9]
    assert len(list(points(axes))) == 4


def test_references_that_lead_nowhere() -> None:
    with pytest.raises(ValueError, match="a: of 'c': there is no such name"):
        reference_order({"a": [Reference("c")]})
    with pytest.raises(ValueError, match=r"in a circle: a of b of a|in a circle: b of a of b"):
        reference_order({"a": [Reference("b")], "b": [Reference("a")]})
    axes: dict[str, list[Json]] = {"a": ["x"], "b": [Reference("a", times=2)]}
    with pytest.raises(ValueError, match="a is 'x', not a whole number"):
        resolved(axes, reference_order(axes), (0, 0))
    assert resolved({**axes, "b": [Reference("a")]}, ["a", "b"], (0, 0))["b"] == "x"


AXES: dict[str, list[Json]] = {
    name: list(range(size)) for name, size in zip("abcdefgh", (7, 7, 4, 2, 1, 4, 6, 3), strict=True)
}


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_is_spread_over_every_axis_and_every_pair(seed: int) -> None:
    drawn = list(islice(spread_points(AXES, seed), 420))
    assert len(set(drawn)) == 420
    sizes = [len(levels) for levels in AXES.values()]
    for axis, size in enumerate(sizes):
        counts = Counter(point[axis] for point in drawn)
        assert all(abs(counts[level] * size / 420 - 1) < 0.1 for level in range(size))
    for one, other in combinations(range(len(sizes)), 2):
        met = {(point[one], point[other]) for point in drawn}
        assert len(met) == sizes[one] * sizes[other], "every pair of levels is met"


EXPECTED = [(5, 0, 3, 1, 0, 2, 1, 1), (1, 2, 0, 1, 0, 2, 0, 1), (6, 4, 0, 1, 0, 3, 3, 0)]


def test_a_sample_is_the_same_everywhere_and_another_for_another_seed() -> None:
    assert list(islice(spread_points(AXES, 0), 3)) == EXPECTED
    assert list(islice(spread_points(AXES, 1), 3)) != EXPECTED
