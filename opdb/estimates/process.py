"""Gaussian processes over configurations: what lies between measured points, and how surely.

What is learned is kept ready to use, as data (length scales, variances, the points and their
weights): a question takes no solve of all points. Formulas: Rasmussen and Williams, Gaussian
Processes for Machine Learning (2006), equations 2.25 to 2.27 and 4.17 (Matérn with ν = 3/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Matrix = Any
"""A numpy array, two-dimensional unless stated otherwise."""

NEAREST = 512
"""Learned points that a covariance is conditioned on."""


@dataclass(frozen=True)
class Kernel:
    """The covariance of two points: `variance` at distance 0, less the farther apart they are.

    `lengths` are one for each column of the points; `noise` is the variance of what no point tells
    of another (kernels that a library picks for one size and not for the next).
    """

    variance: float
    lengths: tuple[float, ...]
    noise: float

    def between(self, ones: Matrix, others: Matrix) -> Matrix:
        """Return the covariances of n points and m others, shape (n, m), the noise left out."""
        lengths = np.asarray(self.lengths)
        one, other = ones / lengths, others / lengths
        squares = (
            np.sum(one**2, axis=1)[:, None] + np.sum(other**2, axis=1)[None] - 2 * one @ other.T
        )
        apart = math.sqrt(3) * np.sqrt(np.maximum(squares, 0.0))
        return self.variance * (1 + apart) * np.exp(-apart)


@dataclass(frozen=True, eq=False)
class Process:
    """A quantity learned at `points` (shape (n, d)), expected at `mean` far from all of them.

    `weights` (n) say what each point adds at the places near it.
    """

    kernel: Kernel
    mean: float
    points: Matrix
    weights: Matrix

    @classmethod
    def through(cls, kernel: Kernel, mean: float, points: Matrix, values: Matrix) -> Process:
        """Return the process that was seen to have these n values at n points."""
        covariances = _with_noise(kernel, points)
        return cls(kernel, mean, points, np.linalg.solve(covariances, values - mean))

    def expected(self, asked: Matrix | Sequence[Sequence[float]]) -> Matrix:
        """Return what the quantity is expected to be at m points, shape (m,)."""
        return self.mean + self.kernel.between(np.asarray(asked), self.points) @ self.weights

    def prior(self, count: int, alike: Matrix) -> Matrix:
        """Return the covariance of values at `count` points far from all that was learned.

        `alike` (shape (count, count)) is 1 for two whose values go together, else 0.
        """
        return self.kernel.variance * alike + self.kernel.noise * np.eye(count)

    def covariance(self, asked: Matrix | Sequence[Sequence[float]]) -> Matrix:
        """Return the covariance of the quantity's true values at m points, shape (m, m).

        The noise is on its diagonal: the true value at a point is one draw. It is conditioned on
        the learned points most correlated with each of those asked, `NEAREST` in all; the others
        would reduce it little.
        """
        at = np.asarray(asked)
        between = self.kernel.between(at, self.points)
        ranks = np.argsort(np.argsort(-between, axis=1, kind="stable"), axis=1)
        near = np.argsort(ranks.min(axis=0), kind="stable")[:NEAREST]
        between = between[:, near]
        known = _with_noise(self.kernel, self.points[near])
        unexplained = _with_noise(self.kernel, at) - between @ np.linalg.solve(known, between.T)
        return (unexplained + unexplained.T) / 2


def _with_noise(kernel: Kernel, points: Matrix) -> Matrix:
    return kernel.between(points, points) + kernel.noise * np.eye(len(points))
