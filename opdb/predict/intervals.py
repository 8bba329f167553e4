"""The uncertainty of a sum of operators: from their own intervals, and from measured models."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opdb.derive.boards import Factor
from opdb.derive.statistics import t95
from opdb.records import Quantity


@dataclass(frozen=True)
class ModelError:
    """How far sums of operators are from models: 95 % half widths, on logarithms.

    A sum errs by a share of its own (`relative`), and by a time for each of its kernels
    (`kernel_s`, seconds): what a kernel takes in a model depends on its neighbours and on what the
    L2 keeps, by a tenth of a microsecond however long the kernel is. So sums of short kernels err
    more.
    """

    relative: float
    kernel_s: float

    def half_width(self, mean_kernel_s: float | None) -> float:
        """Return the half width for a pass whose kernels take so long on average (seconds).

        None or 0: it is not known, so kernels are taken as `SHORTEST_KERNEL_S` long.
        """
        return math.hypot(self.relative, self.kernel_s / (mean_kernel_s or SHORTEST_KERNEL_S))


SHORTEST_KERNEL_S = 2e-6
"""About what the shortest kernels of a GPU take."""

TIME_ERROR = ModelError(0.0215, 103e-9)
ENERGY_ERROR = ModelError(0.0335, 232e-9)
"""Least mean interval score over the published runs (`python -m benchmarks.intervals`)."""

TAIL_DEGREES = 4.0
"""Errors of models are taken as Student's t with so many degrees of freedom: most are small, a few
are large, and a few large ones do not widen all intervals."""

PRIOR_MODELS = 4.0
"""The published runs weigh as much as so many models of the device at hand."""

STEPS = 20
"""Steps of the iteration that weighs errors by how far they lie out; it settles in about ten."""

PRIOR_DEGREES = 4.0
PRIOR_HOST_ERROR = 0.1
"""Before any run: a host's time varies by 10 % (one standard deviation) from one moment to another,
and that belief weighs as much as four runs."""


PeerRatio = tuple[float, float | None]
"""Predicted / measured of another model's run, and the mean time of its kernels (seconds)."""


def sum_half_width(parts: Iterable[tuple[int, Quantity]]) -> float:
    """Return the half width of Σ count · quantity, the quantities' errors being independent.

    All calls of one configuration share one error, so its count multiplies the width. A quantity
    without an interval adds none.
    """
    return math.sqrt(sum((count * (each.half_width or 0.0)) ** 2 for count, each in parts))


def shared_half_width(parts: Iterable[tuple[float, Factor]]) -> float:
    """Return the half width that factors between boards add to a sum.

    `parts` are amounts and the factor that brought each: all amounts that one factor brought share
    its error, two factors err independently. So what came without a factor, from whichever boards,
    shares one error: that of the board that it came to.
    """
    amounts: dict[Factor, float] = defaultdict(float)
    for amount, factor in parts:
        amounts[factor] += amount
    return math.hypot(*(amount * factor.half_width for factor, amount in amounts.items()), 0.0)


def model_error(expected: ModelError, kernel_s: float | None, peers: Sequence[PeerRatio]) -> float:
    """Return the 95 % half width, on logarithms, of a sum whose kernels take `kernel_s` on average.

    `peers` are those of other models' runs. Each error is held against the half width expected of
    it, about no error and not about their mean, because no factor is ever fitted. Where they err
    more or less than expected, all half widths are scaled: the scale of a Student's t by maximum
    likelihood (Lange, Little & Taylor 1989, doi:10.1080/01621459.1989.10478852), shrunk towards 1
    as a variance is (Smyth 2004, doi:10.2202/1544-6115.1027), because even where all others err
    little, the next model may be the first of its sort.
    """
    unit = t95(TAIL_DEGREES)
    squares = [
        (unit * math.log(ratio) / expected.half_width(of_kernel_s)) ** 2
        for ratio, of_kernel_s in peers
        if ratio > 0
    ]
    return _scale(squares) * expected.half_width(kernel_s)


def _scale(squares: Sequence[float]) -> float:
    """Return the scale of squared errors that are 1 on the scale expected, a prior joined in."""
    variance = 1.0
    for _ in range(STEPS):
        weighted = sum((TAIL_DEGREES + 1) / (TAIL_DEGREES + s / variance) * s for s in squares)
        variance = (PRIOR_MODELS + weighted) / (PRIOR_MODELS + len(squares))
    return math.sqrt(variance)


def host_error(ratios: Sequence[float]) -> float:
    """Return the 95 % half width, on logarithms, of a host's time from one moment to another.

    `ratios` are predicted / measured times of passes that wait for their host: it issued the calls
    at one moment and was timed at another. They are joined with the prior belief.
    """
    errors = [math.log(ratio) for ratio in ratios if ratio > 0]
    degrees = PRIOR_DEGREES + len(errors)
    variance = (PRIOR_DEGREES * PRIOR_HOST_ERROR**2 + sum(e * e for e in errors)) / degrees
    return t95(degrees) * math.sqrt(variance)
