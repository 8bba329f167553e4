"""The posterior against scikit-learn's, which solves the same equations in its own way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from opdb.estimates import estimator as processes
from opdb.estimates.estimator import Covariance, Process

DRAWN = np.random.default_rng(3)
POINTS = DRAWN.normal(size=(40, 3))
ASKED = DRAWN.normal(size=(7, 3))
VALUES = np.sin(POINTS[:, 0]) + 0.3 * POINTS[:, 1]
KERNEL = Covariance(variance=0.7, lengths=(0.8, 2.0, 30.0), noise=0.01)


def process() -> Process:
    return Process.through(KERNEL, 0.25, POINTS, VALUES)


def test_expectation_and_covariance_are_those_of_scikit_learn() -> None:
    kernel = ConstantKernel(0.7) * Matern([0.8, 2.0, 30.0], nu=1.5) + WhiteKernel(0.01)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(POINTS, VALUES - 0.25)
    mean, covariance = theirs.predict(ASKED, return_cov=True)
    ours = process()
    expected, of_errors = ours.at(ASKED.tolist())
    assert expected == pytest.approx(mean + 0.25, abs=1e-6), "weights are kept in float32"
    assert of_errors == pytest.approx(covariance, abs=1e-9), "all 40 points are near"


def test_a_measured_point_is_known_but_for_the_noise_and_a_far_one_is_not() -> None:
    ours = process()
    near, far = [POINTS[0].tolist()], [[40.0, 40.0, 4000.0]]
    [expected], [[variance]] = ours.at(near)
    assert abs(expected - VALUES[0]) < 0.05 and 0.01 < variance < 0.02
    [expected], [[variance]] = ours.at(far)
    assert (expected, variance) == pytest.approx((0.25, 0.71), abs=1e-6)


def test_two_points_go_together_as_far_as_they_are_alike() -> None:
    _, covariance = process().at([[3.0, 3.0, 0.0], [3.0, 3.0, 0.1], [-3.0, 3.0, 0.0]])

    def correlation(i: int, j: int) -> float:
        return float(covariance[i, j]) / math.sqrt(covariance[i, i] * covariance[j, j])

    assert correlation(0, 1) > 0.9 > 0.3 > abs(correlation(0, 2))


def test_a_covariance_rests_on_the_points_nearest_to_any_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two points near each of those asked stand for all forty and those far off."""
    near = [[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [5.0, 0.0, 0.0], [5.3, 0.0, 0.0]]
    far = [[x, 9.0, 0.0] for x in np.linspace(-9, 9, 36)]
    points = np.array([*far[:18], *near, *far[18:]])
    asked = [[0.1, 0.0, 0.0], [5.1, 0.0, 0.0]]
    monkeypatch.setattr(processes, "NEAREST", 2)
    _, found = Process.through(KERNEL, 0.0, points, np.zeros(40)).at(asked)
    _, alone = Process.through(KERNEL, 0.0, np.array(near), np.zeros(4)).at(asked)
    assert found == pytest.approx(alone, abs=1e-12)
    assert (found == found.T).all()
    monkeypatch.setattr(processes, "NEAREST", 64)
    monkeypatch.setattr(processes, "MOST_USED", 5)
    _, few = Process.through(KERNEL, 0.0, points, np.zeros(40)).at(asked)
    assert few == pytest.approx(alone, abs=1e-12), "two of five for each of two"
    monkeypatch.setattr(processes, "MOST_USED", 1)
    _, least = Process.through(KERNEL, 0.0, points, np.zeros(40)).at(asked)
    own = near[0], near[2]
    _, nearest = Process.through(KERNEL, 0.0, np.array(own), np.zeros(2)).at(asked)
    assert np.diag(least) == pytest.approx(np.diag(nearest), rel=1e-3), "one for each at least"
