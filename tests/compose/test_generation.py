"""Sums of the passes of a generation: at which lengths steps are predicted, and their weights."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from opdb.compose.generation import GROWTH, lengths, weights


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 2), (5, 9), (100, 10_000), (1024, 1278)])
def test_lengths_reach_from_first_to_last_in_small_ratios(first: int, last: int) -> None:
    found = lengths(first, last)
    assert (found[0], found[-1]) == (first, last)
    assert found == sorted(set(found))
    pairs = list(pairwise(found))
    assert all(high / low <= 1.1 * GROWTH or high - low == 1 for low, high in pairs)


@pytest.mark.parametrize(("first", "last"), [(7, 7), (5, 9), (100, 3000)])
def test_weights_sum_what_is_linear_exactly(first: int, last: int) -> None:
    knots = lengths(first, last)
    found = weights(knots, first, last)
    every = range(first, last + 1)
    assert math.isclose(sum(found), len(every))
    of_knots = sum(n * (3 + 0.5 * knot) for n, knot in zip(found, knots, strict=True))
    assert math.isclose(of_knots, sum(3 + 0.5 * length for length in every))


def test_one_step_stands_for_all_of_a_static_cache() -> None:
    assert weights([100], 100, 354) == [255]
