"""Statistics against scipy, against hand-made values, and on a trace that must be flagged."""

from __future__ import annotations

import random
import statistics

import pytest
from scipy.stats import t as student

from opdb.derive.statistics import (
    AGREEMENT_BOUND,
    MIN_CLIP_COUNT,
    disagreement,
    half_width,
    pool_spread,
    slope,
    t95,
    three_sigma_mean,
    trapezoid_mean,
)


@pytest.mark.parametrize("degrees", [1, 2, 5, 10, 30, 31, 40, 100, 1000])
def test_t95_is_students_quantile(degrees: int) -> None:
    assert t95(degrees) == pytest.approx(student.ppf(0.975, degrees), rel=1e-3)


def test_t95_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="degree"):
        t95(0)


def test_three_sigma_rejects_nothing_below_eleven_values() -> None:
    ten = [1.0] * 9 + [100.0]
    assert len(ten) < MIN_CLIP_COUNT
    assert three_sigma_mean(ten) == statistics.fmean(ten)


def test_three_sigma_rejects_an_outlier_among_many() -> None:
    assert three_sigma_mean([1.0] * 30 + [100.0]) == 1.0


def test_median_and_three_sigma_mean_agree_on_noise_and_disagree_on_two_states() -> None:
    noise = random.Random(0)
    steady = [noise.gauss(600, 3) for _ in range(40)]
    assert disagreement(steady) < AGREEMENT_BOUND
    two_states = [500 + noise.gauss(0, 3) for _ in range(26)] + [
        700 + noise.gauss(0, 3) for _ in range(14)
    ]
    assert disagreement(two_states) > AGREEMENT_BOUND


def test_trapezoid_weighs_by_time() -> None:
    assert trapezoid_mean([(0, 100), (1, 100), (1.5, 400), (2, 100)]) == pytest.approx(175)
    assert trapezoid_mean([(0, 100)]) is None


def test_slope_is_between_the_outer_edges() -> None:
    assert slope([(0.1, 5.0), (0.2, 9.0), (0.3, 25.0)]) == pytest.approx(100)
    assert slope([(0.1, 5.0)]) is None


def test_spread_is_pooled_over_configurations() -> None:
    pooled = pool_spread([[1.0, 1.02], [50.0, 51.0], [7.0]])
    assert pooled is not None and pooled.degrees == 2
    expected = (
        statistics.variance([1.0, 1.02]) / 1.01**2 + statistics.variance([50, 51]) / 50.5**2
    ) / 2
    assert pooled.relative == pytest.approx(expected**0.5)
    assert pool_spread([[1.0], [2.0]]) is None


def test_a_single_visit_has_an_interval_only_from_the_pooled_spread() -> None:
    assert half_width([5.0], None) is None
    pooled = pool_spread([[1.0, 1.02], [50.0, 51.0]])
    width = half_width([5.0], pooled)
    assert width is not None and width > 0


def test_intervals_of_pairs_cover_the_truth_as_often_as_stated() -> None:
    noise = random.Random(1)
    pairs = [[noise.gauss(1, 0.01), noise.gauss(1, 0.01)] for _ in range(400)]
    pooled = pool_spread(pairs)
    inside = 0
    for pair in pairs:
        width = half_width(pair, pooled)
        assert width is not None
        inside += abs(statistics.fmean(pair) - 1) <= width
    assert pooled is not None and pooled.relative == pytest.approx(0.01, rel=0.15)
    # Five degrees of freedom make an interval of normal values rather too wide than too narrow.
    assert 0.95 <= inside / len(pairs) < 1


def test_a_few_wild_pairs_do_not_widen_the_others() -> None:
    noise = random.Random(2)
    pairs = [[noise.gauss(1, 0.01), noise.gauss(1, 0.01)] for _ in range(400)]
    calm = pool_spread(pairs)
    wild = pool_spread([*pairs, *([1.0, 2.0] for _ in range(20))])
    assert calm is not None and wild is not None
    assert wild.relative < 1.15 * calm.relative
