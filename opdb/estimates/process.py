"""Gaussian processes over configurations: what lies between measured points, and how surely.

What is learned is kept ready to use, as data (length scales, variances, the points and their
weights, in float32): a question solves no more than the `NEAREST` points of each place asked.
Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25 to
2.27 and 4.17 (Matérn with ν = 3/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Matrix = Any
"""A numpy array, two-dimensional unless stated otherwise."""

NEAREST = 64
"""Learned points that the variance of a place is conditioned on: the most correlated ones."""

MOST_USED = 2048
"""Learned points that a covariance of several places is conditioned on at most, together."""


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
        """Return the process that was seen to have these n values at n points (float32)."""
        weights = np.linalg.solve(with_noise(kernel, points), values - mean)
        return cls(kernel, mean, points, np.float32(weights).astype(float))

    def prior(self, count: int, alike: Matrix) -> Matrix:
        """Return the covariance of values at `count` points far from all that was learned.

        `alike` (shape (count, count)) is 1 for two whose values go together, else 0.
        """
        return self.kernel.variance * alike + self.kernel.noise * np.eye(count)

    def at(self, asked: Matrix | Sequence[Sequence[float]]) -> tuple[Matrix, Matrix]:
        """Return what is expected at m points, and the covariance of the true values there.

        Their shapes are (m,) and (m, m). The noise is on the diagonal: the true value at a point is
        one draw. The covariance is that of the errors of kriging each point from the learned points
        most correlated with it alone, as Vecchia (1988) does; the others would reduce it little.
        """
        at = np.asarray(asked)
        between = self.kernel.between(at, self.points)
        expected = self.mean + between @ self.weights
        count = min(NEAREST, len(self.points), max(1, MOST_USED // len(at)))
        near = np.argpartition(-between, count - 1, axis=1)[:, :count]
        used, place = np.unique(near, return_inverse=True)
        place = place.reshape(near.shape)
        known = with_noise(self.kernel, self.points[used])
        told = np.take_along_axis(between, near, axis=1)
        blocks = known[place[:, :, None], place[:, None, :]]
        weights = np.zeros((len(at), len(used)))
        np.put_along_axis(weights, place, np.linalg.solve(blocks, told[..., None])[..., 0], axis=1)
        explained = weights @ between[:, used].T
        found = with_noise(self.kernel, at) - explained - explained.T + weights @ known @ weights.T
        return expected, (found + found.T) / 2


def with_noise(kernel: Kernel, points: Matrix) -> Matrix:
    """Return the covariance of what is measured at n points, shape (n, n)."""
    return kernel.between(points, points) + kernel.noise * np.eye(len(points))


def left_out(inverse: Matrix, weights: Matrix, rows: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return by how much m rows are expected too high when left out, and their covariance.

    Both follow from the inverse (n, n) of all points' covariance and the weights (n) of their
    values; nothing is learned anew (Rasmussen and Williams, equations 5.12, for blocks). Shapes:
    (m,) and (m, m).
    """
    covariance = np.linalg.inv(inverse[np.ix_(rows, rows)])
    return -covariance @ weights[rows], covariance
