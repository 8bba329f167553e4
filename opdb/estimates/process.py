"""Gaussian processes over configurations: what lies between measured points, and how surely.

Only what is learned is kept (length scales, variances, the points and their values), so that it
can be stored as data; the posterior is solved anew when it is first asked for. Formulas: Rasmussen
and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25, 2.26 and 4.17 (Matérn
with ν = 3/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Matrix = Any
"""A numpy array of two dimensions."""


@dataclass(frozen=True)
class Kernel:
    """The covariance of two points: `variance` where they are one, less with their distance.

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
    """A quantity known at `points` (n rows), expected at `mean` far from all of them."""

    kernel: Kernel
    mean: float
    points: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]

    @cached_property
    def _at(self) -> Matrix:
        return np.asarray(self.points)

    @cached_property
    def _covariances(self) -> Matrix:
        return self.kernel.between(self._at, self._at) + self.kernel.noise * np.eye(len(self._at))

    @cached_property
    def _weights(self) -> Matrix:
        return np.linalg.solve(self._covariances, np.asarray(self.values) - self.mean)

    def expected(self, asked: Sequence[Sequence[float]]) -> Matrix:
        """Return what the quantity is expected to be at m points, shape (m,)."""
        return self.mean + self.kernel.between(np.asarray(asked), self._at) @ self._weights

    def covariance(self, asked: Sequence[Sequence[float]]) -> Matrix:
        """Return the covariance of the quantity's true values at m points, shape (m, m).

        The noise is on its diagonal: the true value at a point is one draw.
        """
        at = np.asarray(asked)
        between = self.kernel.between(at, self._at)
        explained = between @ np.linalg.solve(self._covariances, between.T)
        unexplained = self.kernel.between(at, at) - explained
        return (unexplained + unexplained.T) / 2 + self.kernel.noise * np.eye(len(at))
