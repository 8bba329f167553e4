"""Quiet time: what calls and passes take while nothing slows the host down. Pure.

On a machine that others share, the host takes 1 to 2.4 times as long from one half second to the
next, so a pass that waits for it has no single time. What repeats is its time in quiet moments. A
block is one round of all calls of a workload, or as many passes as take as long; blocks are ranked
by their totals. A sum of each call's own lowest times would be too short: not all calls are at
their fastest at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

QUIET_SHARE = 0.1
"""Share of the blocks that count: those with the lowest totals."""

LEAST_BLOCKS = 50
"""Blocks below which a tenth of them is too few to tell quiet moments from chance."""

_ROUNDING = 1e-9


def quietest(totals_s: Sequence[float]) -> list[int]:
    """Return the places of the lowest tenth of blocks (rounded up) by their totals, lowest first.

    Raises:
        ValueError: there is no block.
    """
    if not totals_s:
        raise ValueError("no block, so none is the quietest")
    count = math.ceil(QUIET_SHARE * len(totals_s) - _ROUNDING)
    return sorted(range(len(totals_s)), key=totals_s.__getitem__)[:count]


def quiet_time_s(blocks_s: Sequence[float]) -> float:
    """Return the mean of the lowest tenth of blocks.

    Raises:
        ValueError: there is no block.
    """
    return statistics.fmean(blocks_s[place] for place in quietest(blocks_s))


def quiet_times_s(blocks_s: Sequence[Sequence[float]]) -> list[float]:
    """Return each call's mean over the blocks that are quietest as a whole.

    A block holds the time of each call (seconds), in the same order in every block.

    Raises:
        ValueError: there is no block, or one holds other calls.
    """
    quiet = quietest([math.fsum(block) for block in blocks_s])
    calls = zip(*(blocks_s[place] for place in quiet), strict=True)
    return [statistics.fmean(times_s) for times_s in calls]


@dataclass(frozen=True)
class Slowdown:
    """How many times as long as in quiet moments the host took: at the median, and its range.

    `low` and `high` are the 5th and 95th percentiles of all blocks.
    """

    median: float
    low: float
    high: float


def host_slowdown(blocks_s: Sequence[float]) -> Slowdown | None:
    """Return how much slower than quiet the host was over blocks; None below `LEAST_BLOCKS`."""
    if len(blocks_s) < LEAST_BLOCKS:
        return None
    quiet_s = quiet_time_s(blocks_s)
    cuts = statistics.quantiles(blocks_s, n=20, method="inclusive")
    return Slowdown(statistics.median(blocks_s) / quiet_s, cuts[0] / quiet_s, cuts[-1] / quiet_s)
