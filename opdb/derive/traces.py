"""A board's raw traces and their analysis: periods, mean powers, how samples follow a load.

Pure, so that a recorded board can be looked at anew where there is no GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opdb.records import Series, Trace

METERS = ("samples", "counter", "instant")
POWER_METERS = ("samples", "counter")
"""The meters that may give power, the better one first."""

FULL_CLOCK_SHARE = 0.985
"""A clock below this share of the highest was held back."""

STANDS_OUT = 1.25
"""A load must raise a meter to this many times its level without the load, or it tests nothing."""

MIN_EDGES = 5
LATE_STEP = 1.5
"""An edge this many periods after the one before was not seen when it happened."""

LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Wave:
    """A load switched on and off: when it was on (s since the trace began), and its trace."""

    period_s: float
    on: Series
    trace: Trace


@dataclass(frozen=True)
class BoardRecord:
    """Everything that is recorded of one board, raw.

    `steady` holds traces of one steady load by how the counter was polled ("none": not at all but
    for the ends, "usual", "fast"); `off` is the trace of what runs between the loads of a wave.
    `limit` begins with a load that reaches the power limit and goes on after its end. `rates` are
    facts measured as such. `passes` are (bytes, seconds a pass) of reading a buffer over and over.
    """

    steady: Mapping[str, Trace]
    off: Trace
    step: Wave
    squares: tuple[Wave, ...]
    idle: Trace
    limit: Trace
    limit_end_s: float
    rates: Mapping[str, float | None]
    passes: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Ratings:
    """The board's rated figures and the settling time of visits; None where one is not known."""

    max_clock_hz: float | None
    l2_bytes: int | None
    settle_s: float


def period_s(series: Sequence[tuple[float, float]]) -> float | None:
    """Return the median step between the moments of a series; None below two."""
    steps = [b - a for (a, _), (b, _) in pairwise(series)]
    return statistics.median(steps) if steps else None


def counter_power_w(edges: Series) -> float | None:
    """Return the power (W) by a line through a counter's edges; None below five of them.

    An edge that was seen late, because the counter was not read for a while, is left out.
    """
    usual_s = period_s(edges)
    if usual_s is None:
        return None
    seen = edges[:1] + tuple(
        edge for before, edge in pairwise(edges) if edge[0] - before[0] <= LATE_STEP * usual_s
    )
    return line_through(seen)[0] if len(seen) >= MIN_EDGES else None


def mean_power_w(trace: Trace, meter: str) -> float | None:
    """Return the mean power (W) that one meter saw over a trace; None if it saw too little."""
    if meter == "counter":
        return counter_power_w(trace.counter_edges)
    series = series_of(trace, meter)
    return statistics.fmean(w for _, w in series) if len(series) >= MIN_EDGES else None


def crossing_s(samples: Series, after_s: float, level: float, within_s: float) -> float | None:
    """Return when samples first rise through a level after a moment, by interpolation."""
    for (t0, w0), (t1, w1) in pairwise(samples):
        if after_s <= t1 < after_s + within_s and w0 < level <= w1:
            return t0 + (t1 - t0) * (level - w0) / (w1 - w0)
    return None


def series_of(trace: Trace, meter: str) -> Series:
    """Return the powers (W) that the samples or the instant power gave."""
    return trace.power_samples if meter == "samples" else trace.instant_samples


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line through points."""
    found = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return found.slope, found.intercept


def highest(series: Series) -> float | None:
    """Return the largest value of a series; None of an empty one."""
    return max((value for _, value in series), default=None)


def best_mean_w(trace: Trace) -> float | None:
    """Return the mean power by the better meter that saw the trace."""
    means = (mean_power_w(trace, meter) for meter in POWER_METERS)
    return next((mean for mean in means if mean is not None), None)


def part_of(trace: Trace, start_s: float, end_s: float) -> Trace:
    """Return what lies between two moments of a trace, at the times that it has there."""

    def cut(series: Series) -> Series:
        return tuple((t, value) for t, value in series if start_s <= t <= end_s)

    return Trace(
        end_s - start_s,
        cut(trace.power_samples),
        cut(trace.counter_edges),
        cut(trace.instant_samples),
        cut(trace.clock_samples),
        trace.answering,
    )


def expected_energy_j(
    on: Series, levels_w: tuple[float, float], start_s: float, end_s: float
) -> float:
    """Return the energy (J) between two moments of a load that alternates between two levels."""
    low, high = levels_w
    busy_s = sum(max(0.0, min(b, end_s) - max(a, start_s)) for a, b in on)
    return low * (end_s - start_s) + (high - low) * busy_s


@dataclass(frozen=True)
class Rise:
    """How samples follow a load switched on: when they are half way, and from 10 % to 90 %."""

    lag_s: float | None
    response_s: float | None


def rise_of(record: BoardRecord) -> Rise:
    """Return how the samples follow the load that is switched on slowly; None where they do not."""
    high = mean_power_w(record.steady["usual"], "samples")
    low = mean_power_w(record.off, "samples")
    if high is None or low is None or high < STANDS_OUT * low:
        return Rise(None, None)
    samples = record.step.trace.power_samples
    lags, responses = [], []
    for start_s, end_s in record.step.on:
        first, half, last = (
            crossing_s(samples, start_s, low + share * (high - low), end_s - start_s)
            for share in LEVELS
        )
        if half is not None:
            lags.append(half - start_s)
        if first is not None and last is not None:
            responses.append(last - first)
    return Rise(
        max(0.0, statistics.median(lags)) if lags else None,
        statistics.median(responses) if len(responses) > len(record.step.on) / 2 else None,
    )
