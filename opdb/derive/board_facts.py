"""A board's facts from its traces: periods, lag, base power, the power limit, the L2. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from opdb.derive.traces import (
    FULL_CLOCK_SHARE,
    MIN_EDGES,
    BoardRecord,
    Ratings,
    best_mean_w,
    highest,
    line_through,
    part_of,
    period_s,
    rise_of,
)
from opdb.records import Trace

CACHED_SHARE = 0.25
"""Reads of up to this share of the L2 certainly stay in it."""

BEYOND_SHARE = 1.7
"""Reads of this many times the L2 or more certainly do not."""

LEAST_CONTRAST = 1.1
"""By how much reading a byte must take longer beyond the L2, for a step to be seen."""


def facts_of(record: BoardRecord, ratings: Ratings) -> tuple[dict[str, float | None], list[str]]:
    """Return the board's facts, and why those are missing that are None."""
    usual = record.steady["usual"]
    rise = rise_of(record)
    highest_hz = ratings.max_clock_hz or highest(record.limit.clock_samples)
    pulled_s, recovered_s = limit_times_s(record.limit, record.limit_end_s, highest_hz)
    l2_resident, why_not = resident_bytes(record.passes, ratings.l2_bytes)
    facts = {
        "sample_period_s": period_s(usual.power_samples),
        "counter_period_s": period_s(usual.counter_edges),
        "instant_period_s": period_s(usual.instant_samples),
        "sample_lag_s": rise.lag_s,
        "step_response_10_90_s": rise.response_s,
        "base_power_w": best_mean_w(record.idle),
        "limit_pull_down_s": pulled_s,
        "limit_recover_s": recovered_s,
        "limit_power_w": None if pulled_s is None else _late_power_w(record),
        **record.rates,
        "l2_resident_bytes": l2_resident,
    }
    reasons = {
        "instant_period_s": "the driver reports no instant power",
        "limit_pull_down_s": "the load did not pull the clock down",
        "limit_recover_s": "the clock was not seen to fall and rise again",
        "limit_power_w": "the load did not pull the clock down",
        "l2_resident_bytes": why_not,
    }
    notes = [
        f"{name}: {reasons.get(name, 'it could not be measured')}"
        for name, value in facts.items()
        if value is None
    ]
    return facts, notes


def limit_times_s(
    trace: Trace, end_s: float, highest_hz: float | None
) -> tuple[float | None, float | None]:
    """Return how long a load runs until the clock is pulled down, and how long it stays so after.

    `end_s` is when the load ended. None where the clock was not held back, or did not come back.
    """
    if not highest_hz:
        return None, None
    held = [(t, hz < FULL_CLOCK_SHARE * highest_hz) for t, hz in trace.clock_samples]
    pulled_s = next((t for t, low in held if low and t <= end_s), None)
    if pulled_s is None:
        return None, None
    last_low_s = max(end_s, *(t for t, low in held if low))
    recovered_s = next((t - end_s for t, _ in held if t > last_low_s), None)
    return pulled_s, recovered_s


def _late_power_w(record: BoardRecord) -> float | None:
    """Return the mean power of the later half of the load at the power limit."""
    return best_mean_w(part_of(record.limit, record.limit_end_s / 2, record.limit_end_s))


def resident_bytes(
    passes: Sequence[tuple[float, float]], l2_bytes: int | None
) -> tuple[float | None, str]:
    """Return the most bytes that stay in the L2 from one pass to the next, or why it is not known.

    `passes` are (bytes, seconds a pass), in growing size. What a pass takes whatever its size comes
    from a line through the small ones; the rest, a byte, rises from what it is in the cache to what
    it is far beyond, and half way up is the answer.
    """
    if not l2_bytes:
        return None, "the driver does not report the size of the L2"
    small = [p for p in passes if p[0] <= CACHED_SHARE * l2_bytes]
    large = [p for p in passes if p[0] >= BEYOND_SHARE * l2_bytes]
    if len(small) < MIN_EDGES or not large:
        return None, "too few sizes were read"
    cached, fixed_s = line_through(small)
    per_byte = [(size, (seconds - fixed_s) / size) for size, seconds in passes]
    beyond = statistics.median(rate for size, rate in per_byte if size >= large[0][0])
    if cached <= 0 or beyond < LEAST_CONTRAST * cached:
        return None, "reading beyond the L2 takes hardly longer than within it"
    half = (cached + beyond) / 2
    for (size0, rate0), (size1, rate1) in pairwise(per_byte):
        if size0 > small[-1][0] and rate0 < half <= rate1:
            return size0 + (size1 - size0) * (half - rate0) / (rate1 - rate0), ""
    return None, "reading grew slower in no one place"
