"""The posterior against scikit-learn's, which solves the same equations in its own way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from opdb.estimates.process import Kernel, Process

DRAWN = np.random.default_rng(3)
POINTS = DRAWN.normal(size=(40, 3))
ASKED = DRAWN.normal(size=(7, 3))
VALUES = np.sin(POINTS[:, 0]) + 0.3 * POINTS[:, 1]
KERNEL = Kernel(variance=0.7, lengths=(0.8, 2.0, 30.0), noise=0.01)


def process() -> Process:
    return Process.through(KERNEL, 0.25, POINTS, VALUES)


def test_expectation_and_covariance_are_those_of_scikit_learn() -> None:
    kernel = ConstantKernel(0.7) * Matern([0.8, 2.0, 30.0], nu=1.5) + WhiteKernel(0.01)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(POINTS, VALUES - 0.25)
    mean, covariance = theirs.predict(ASKED, return_cov=True)
    ours = process()
    assert ours.expected(ASKED.tolist()) == pytest.approx(mean + 0.25, abs=1e-9)
    assert ours.covariance(ASKED.tolist()) == pytest.approx(covariance, abs=1e-9)


def test_a_measured_point_is_known_but_for_the_noise_and_a_far_one_is_not() -> None:
    ours = process()
    near, far = [POINTS[0].tolist()], [[40.0, 40.0, 4000.0]]
    assert abs(ours.expected(near)[0] - VALUES[0]) < 0.05
    assert 0.01 < ours.covariance(near)[0, 0] < 0.02
    assert ours.expected(far)[0] == pytest.approx(0.25, abs=1e-6)
    assert ours.covariance(far)[0, 0] == pytest.approx(0.71, abs=1e-6)


def test_two_points_go_together_as_far_as_they_are_alike() -> None:
    covariance = process().covariance([[3.0, 3.0, 0.0], [3.0, 3.0, 0.1], [-3.0, 3.0, 0.0]])

    def correlation(i: int, j: int) -> float:
        return float(covariance[i, j]) / math.sqrt(covariance[i, i] * covariance[j, j])

    assert correlation(0, 1) > 0.9 > 0.3 > abs(correlation(0, 2))
