"""Statistics against scipy, against hand-made values, and on a trace that must be flagged."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy.stats import t as student

from opdb.derive.statistics import (
    AGREEMENT_BOUND,
    MIN_CLIP_COUNT,
    PRIOR_DEGREES,
    disagreement,
    half_width,
    pool_spread,
    slope,
    t95,
    three_sigma_mean,
    trapezoid_mean,
    visit_deviation,
)


def test_t95_is_students_quantile() -> None:
    for degrees in range(1, 31):
        assert t95(degrees) == round(student.ppf(0.975, degrees), 3)
    for degrees, error in ((31, 1e-4), (40, 5e-5), (100, 5e-6), (400, 6e-8)):
        assert t95(degrees) == pytest.approx(student.ppf(0.975, degrees), abs=error)
    assert t95(2.9) == t95(2), "rather too wide"


def test_t95_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="degree"):
        t95(0)


def test_three_sigma_rejects_nothing_below_eleven_values() -> None:
    ten = [1.0] * 9 + [100.0]
    assert len(ten) < MIN_CLIP_COUNT
    assert three_sigma_mean(ten) == statistics.fmean(ten)


def test_three_sigma_rejects_an_outlier_among_many() -> None:
    assert three_sigma_mean([1.0] * 30 + [100.0]) == 1.0
    assert three_sigma_mean([600.0] * 10 + [660.0]) == 600, "3.02 σ from the mean of eleven"
    assert three_sigma_mean([600.0] * 10 + [540.0]) == 600
    assert three_sigma_mean([4.0, -3.0, -1.0, *[0.0] * 23]) == pytest.approx(-0.16), "3 σ, no more"
    assert three_sigma_mean([600.0] * 9 + [660.0] * 2) == pytest.approx(610.909, abs=1e-3)


def test_median_and_three_sigma_mean_agree_on_noise_and_disagree_on_two_states() -> None:
    noise = random.Random(0)
    steady = [noise.gauss(600, 3) for _ in range(40)]
    assert disagreement(steady) < AGREEMENT_BOUND
    two_states = [500 + noise.gauss(0, 3) for _ in range(26)] + [
        700 + noise.gauss(0, 3) for _ in range(14)
    ]
    assert disagreement(two_states) > AGREEMENT_BOUND
    assert disagreement([1.0, 1.0, 4.0]) == disagreement([-1.0, -1.0, -4.0]) == 0.5
    assert disagreement([0.0, 0.0]) == 0


def test_trapezoid_weighs_by_time() -> None:
    assert trapezoid_mean([(0, 100), (1, 100), (1.5, 400), (2, 100)]) == pytest.approx(175)
    assert trapezoid_mean([(501, 100), (503, 300)]) == pytest.approx(200)
    assert trapezoid_mean([(501, 300), (501, 500), (503, 100)]) == pytest.approx(300)
    for nothing in ([], [(0, 100)], [(501, 100), (501, 300)]):
        assert trapezoid_mean(nothing) is None


def test_slope_is_between_the_outer_edges() -> None:
    assert slope([(0.1, 5.0), (0.2, 9.0), (0.3, 25.0)]) == pytest.approx(100)
    assert slope([(501, 0.5), (503, 1.5)]) == pytest.approx(0.5)
    assert slope([(501, 0.5), (501, 1.0), (503, 1.5)]) == pytest.approx(0.5)
    for nothing in ([], [(0.1, 5.0)], [(0.1, 5.0), (0.1, 6.0)]):
        assert slope(nothing) is None


def test_spread_is_pooled_over_configurations() -> None:
    pooled = pool_spread([[1.0, 1.02], [50.0, 51.0], [7.0]])
    expected = (
        statistics.variance([1.0, 1.02]) / 1.01**2 + statistics.variance([50, 51]) / 50.5**2
    ) / 2
    assert pooled == pytest.approx(expected**0.5)
    assert pool_spread([[1.0], [2.0]]) is None
    assert pool_spread([[0.0, 0.0]]) is None


def test_a_spread_is_relative_to_the_scale_given() -> None:
    """Dynamic energies near 0 J differ by little of the energies that they are part of."""
    pooled = pool_spread([[0.001, -0.001], [7.0]], scales=[[0.09, 0.11], [8.0]])
    assert pooled == pytest.approx(0.002 / math.sqrt(2) / 0.1)
    assert half_width([0.0], pooled) == 0
    assert half_width([0.0], pooled, scale=0.1) == pytest.approx(2.776 * 0.002 / math.sqrt(2))


def test_the_spread_is_that_which_two_thirds_of_the_pairs_do_not_exceed() -> None:
    pairs_of_one = pool_spread([[1.0, 1.02, 2.0, 2.2, 7.0]])
    assert pairs_of_one == pytest.approx(0.2 / 2.1 / math.sqrt(2)), "the wider of two"
    hundred = pool_spread([[100.0 - n / 2, 100.0 + n / 2] for n in range(1, 101)])
    assert hundred == pytest.approx(0.69 / math.sqrt(2)), "68.3 % of 100: the 69th"


def test_a_single_visit_has_an_interval_only_from_the_pooled_spread() -> None:
    assert half_width([5.0], None) is None
    pooled = pool_spread([[1.0, 1.02], [50.0, 51.0]])
    width = half_width([5.0], pooled)
    assert width > 0


def test_a_width_is_students_t_times_a_deviation_shrunk_towards_the_pooled_one() -> None:
    assert half_width([5.0, 5.2], None) == pytest.approx(12.706 * 0.1)
    pooled = 0.01
    assert PRIOR_DEGREES == 4
    assert half_width([5.0], pooled) == pytest.approx(2.776 * 0.05)
    shrunk = math.sqrt((0.02 + 4 * 0.051**2) / 5)
    width = half_width([5.0, 5.2], pooled)
    assert width == pytest.approx(2.571 * shrunk / math.sqrt(2))
    assert visit_deviation(width, 2) == pytest.approx(shrunk)
    assert visit_deviation(None, 2) is None


def test_intervals_of_pairs_cover_the_truth_as_often_as_stated() -> None:
    noise = random.Random(1)
    pairs = [[noise.gauss(1, 0.01), noise.gauss(1, 0.01)] for _ in range(400)]
    pooled = pool_spread(pairs)
    inside = 0
    for pair in pairs:
        width = half_width(pair, pooled)
        inside += abs(statistics.fmean(pair) - 1) <= width
    assert pooled == pytest.approx(0.01, rel=0.15)
    # Five degrees of freedom make an interval of normal values rather too wide than too narrow.
    assert 0.95 <= inside / len(pairs) < 1


def test_a_few_wild_pairs_do_not_widen_the_others() -> None:
    noise = random.Random(2)
    pairs = [[noise.gauss(1, 0.01), noise.gauss(1, 0.01)] for _ in range(400)]
    calm = pool_spread(pairs)
    wild = pool_spread([*pairs, *([1.0, 2.0] for _ in range(20))])
    assert wild < 1.15 * calm
