"""The kernel under which measured values are most likely, its length scales held by a prior.

The marginal likelihood and its gradient: Rasmussen and Williams (2006), equations 5.8 and 5.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opdb.estimates.process import Kernel, Matrix

TYPICAL_LENGTH, LENGTH_SPREAD = 3.0, 0.7
"""The prior of a length scale, in standard deviations of its number: the median, and the standard
deviation of the logarithm. Without it, twenty lengths fit whatever few models there are."""

LEAST_NOISE, MOST_NOISE = 0.005, 0.5
"""The least variance that no point explains of another: 7 % of a time (what libraries choose for
one size and not for the next). With less, the narrowest intervals held too few truths."""

ITERATIONS = 40
_START = (0.2, TYPICAL_LENGTH, 0.01)  # variance, lengths, noise
_VARIANCES, _LENGTHS = (0.01, 10.0), (0.1, 300.0)


def tuned(places: Matrix, values: Matrix, names: Sequence[str]) -> Kernel:
    """Return the kernel for n values of mean 0 at n places, shape (n, d).

    Columns of one name (d `names`) share a length scale.
    """
    from scipy.optimize import minimize

    different = list(dict.fromkeys(names))
    member = np.array([[float(name == each) for each in different] for name in names])
    variance, length, noise = (math.log(each) for each in _START)
    found = minimize(
        _unlikelihood,
        np.array([variance, *[length] * len(different), noise]),
        args=(places, values, member),
        jac=True,
        method="L-BFGS-B",
        bounds=[
            np.log(_VARIANCES),
            *[np.log(_LENGTHS)] * len(different),
            np.log((LEAST_NOISE, MOST_NOISE)),
        ],
        options={"maxiter": ITERATIONS},
    )
    variance, *lengths, noise = np.exp(found.x)
    of_columns = (member @ lengths).round(5).tolist()
    return Kernel(float(variance), tuple(of_columns), float(noise))


def _unlikelihood(
    logarithms: Matrix, places: Matrix, values: Matrix, member: Matrix
) -> tuple[float, Matrix]:
    """Return the negative logarithm of likelihood and prior, and its gradient.

    `logarithms` are of the variance, the lengths, and the noise; `member` (d, lengths) says which
    length each column has.
    """
    variance, *lengths, noise = np.exp(logarithms)
    at = places / (member @ lengths)
    kernel = Kernel(variance, (1.0,) * at.shape[1], noise)
    smooth = kernel.between(at, at)
    known = np.linalg.inv(smooth + noise * np.eye(len(at)))
    weights = known @ values
    _, volume = np.linalg.slogdet(known)
    off = (logarithms[1:-1] - math.log(TYPICAL_LENGTH)) / LENGTH_SPREAD
    value = 0.5 * float(values @ weights - volume + off @ off)
    unexplained = known - np.outer(weights, weights)
    # A Matérn kernel with ν = 3/2 falls by 3 σ² e^(−√3 r) Δ² for each logarithm of a length.
    squares = np.sum(at**2, axis=1)
    apart = np.sqrt(3 * np.maximum(squares[:, None] + squares[None] - 2 * at @ at.T, 0.0))
    falling = unexplained * 3 * variance * np.exp(-apart)
    columns = falling.sum(axis=1) @ at**2 - np.sum(at * (falling @ at), axis=0)
    gradient = np.array(
        [
            0.5 * np.sum(unexplained * smooth),
            *(columns @ member + off / LENGTH_SPREAD),
            0.5 * noise * np.trace(unexplained),
        ]
    )
    return value, gradient
