"""The likelihood of a kernel against scikit-learn's, its gradient, and the kernels it leads to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from opdb.estimates.estimator import Matrix
from opdb.estimates.training import _unlikelihood, tuned

DRAWN = np.random.default_rng(7)
PLACES = DRAWN.normal(size=(60, 4))
VALUES = np.sin(2 * PLACES[:, 0]) + 0.2 * PLACES[:, 1] + DRAWN.normal(size=60, scale=0.2)
NAMES = ("a", "b", "b", "c")
MEMBER = np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
KERNEL = np.log([0.7, 0.8, 2.0, 30.0, 0.04])
"""Variance, the lengths of a, b and c, noise."""


def unlikelihood(kernel: Matrix) -> tuple[float, Matrix]:
    return _unlikelihood(kernel, PLACES, VALUES, MEMBER)


def test_the_likelihood_is_that_of_scikit_learn_and_the_prior() -> None:
    kernel = ConstantKernel(0.7) * Matern([0.8, 2.0, 2.0, 30.0], nu=1.5) + WhiteKernel(0.04)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(PLACES, VALUES)
    constant = len(VALUES) / 2 * math.log(2 * math.pi)
    prior = sum((math.log(length / 3.0) / 0.7) ** 2 / 2 for length in (0.8, 2.0, 30.0))
    likelihood = theirs.log_marginal_likelihood(theirs.kernel_.theta)
    assert unlikelihood(KERNEL)[0] == pytest.approx(-likelihood - constant + prior)


def test_the_gradient_is_that_of_small_differences() -> None:
    _, gradient = unlikelihood(KERNEL)
    for which, slope in enumerate(gradient):
        step = np.eye(len(KERNEL))[which] * 1e-5
        rise = unlikelihood(KERNEL + step)[0] - unlikelihood(KERNEL - step)[0]
        assert slope == pytest.approx(rise / 2e-5, rel=1e-4)


def test_no_kernel_near_the_one_found_is_likelier() -> None:
    found = tuned(PLACES, VALUES, NAMES)
    a, b, again, c = found.lengths
    assert b == again, "columns of one name share a length"
    assert a < b < c, "values change most along a, not at all along c"
    assert found.noise == pytest.approx(0.04, rel=0.6)
    kernel = np.log([found.variance, a, b, c, found.noise])
    least, gradient = unlikelihood(kernel)
    assert np.abs(gradient).max() < 0.05
    for which in range(len(kernel)):
        for step in (-0.1, 0.1):
            assert unlikelihood(kernel + step * np.eye(len(kernel))[which])[0] > least


def test_variance_and_noise_stay_within_what_is_plausible() -> None:
    smooth = PLACES[:, 0] / 10
    assert tuned(PLACES, smooth, NAMES).noise == pytest.approx(0.005)
    scattered = DRAWN.normal(size=60, scale=5.0)
    loud = tuned(PLACES, scattered, NAMES)
    assert loud.noise == pytest.approx(0.5) and loud.variance == pytest.approx(10.0)
    assert tuned(PLACES, np.zeros(60), NAMES).variance == pytest.approx(0.01)
