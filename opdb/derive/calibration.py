"""A board's raw traces, the facts that follow from them, and the tests of its meters. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opdb.derive.costs import FULL_CLOCK_SHARE
from opdb.records import Device, MeterTest, Series, Trace

# A board's raw traces and their analysis: periods, mean powers, how samples follow a load.
#
# Pure, so that a recorded board can be looked at anew where there is no GPU.


METERS = ("samples", "counter")
"""The meters that give power, the better one first."""

STANDS_OUT = 1.25
"""A load must raise a meter to this many times its level without the load, or it tests nothing."""

MIN_EDGES = 5
LATE_STEP = 1.5
"""An edge this many periods after the one before was not seen when it happened."""

LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Wave:
    """`on` is in seconds since the trace began."""

    period_s: float
    on: Series
    trace: Trace


@dataclass(frozen=True)
class BoardRecord:
    """Everything that is recorded of one board, raw.

    `steady` is the trace of a steady load, `off` that of what runs between the loads of a wave.
    `limit` is that of a load that reaches the power limit. `rates` are facts measured as such.
    `passes` are (bytes, seconds a pass) of reading a buffer over and over.
    """

    steady: Trace
    off: Trace
    step: Wave
    squares: tuple[Wave, ...]
    idle: Trace
    limit: Trace
    rates: Mapping[str, float | None]
    passes: tuple[tuple[float, float], ...]


def period_s(series: Sequence[tuple[float, float]]) -> float | None:
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
    series = trace.power_samples
    return statistics.fmean(w for _, w in series) if len(series) >= MIN_EDGES else None


def crossing_s(samples: Series, after_s: float, level: float, within_s: float) -> float | None:
    """Return when samples first rise through a level after a moment, by interpolation."""
    for (t0, w0), (t1, w1) in pairwise(samples):
        if after_s <= t1 < after_s + within_s and w0 < level <= w1:
            return t0 + (t1 - t0) * (level - w0) / (w1 - w0)
    return None


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    found = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return found.slope, found.intercept


def best_mean_w(trace: Trace) -> float | None:
    means = (mean_power_w(trace, meter) for meter in METERS)
    return next((mean for mean in means if mean is not None), None)


def part_of(trace: Trace, start_s: float, end_s: float) -> Trace:
    def cut(series: Series) -> Series:
        return tuple((t, value) for t, value in series if start_s <= t <= end_s)

    return Trace(
        end_s - start_s,
        cut(trace.power_samples),
        cut(trace.counter_edges),
        cut(trace.clock_samples),
        trace.answering,
    )


def expected_energy_j(
    on: Series, levels_w: tuple[float, float], start_s: float, end_s: float
) -> float:
    low, high = levels_w
    busy_s = sum(max(0.0, min(b, end_s) - max(a, start_s)) for a, b in on)
    return low * (end_s - start_s) + (high - low) * busy_s


def rise_of(record: BoardRecord) -> tuple[float | None, float | None]:
    """Return how the samples follow a load switched on: the lag until half way, and 10 to 90 %.

    In seconds; None where they do not follow it.
    """
    high = mean_power_w(record.steady, "samples")
    low = mean_power_w(record.off, "samples")
    if high is None or low is None or high < STANDS_OUT * low:
        return None, None
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
    return (
        max(0.0, statistics.median(lags)) if lags else None,
        statistics.median(responses) if len(responses) > len(record.step.on) / 2 else None,
    )


# A board's facts from its traces: periods, lag, base power, the power limit, the L2. Pure.


CACHED_SHARE = 0.25
"""Reads of up to this share of the L2 certainly stay in it."""

BEYOND_SHARE = 1.7
"""Reads of this many times the L2 or more certainly do not."""

LEAST_CONTRAST = 1.1
"""By how much reading a byte must take longer beyond the L2, for a step to be seen."""


def facts_of(record: BoardRecord, device: Device) -> tuple[dict[str, float | None], list[str]]:
    steady = record.steady
    lag_s, response_s = rise_of(record)
    l2_resident, why_not = resident_bytes(record.passes, device.l2_bytes)
    facts = {
        "sample_period_s": period_s(steady.power_samples),
        "counter_period_s": period_s(steady.counter_edges),
        "sample_lag_s": lag_s,
        "step_response_10_90_s": response_s,
        "base_power_w": best_mean_w(record.idle),
        "limit_power_w": limit_power_w(record.limit, device.max_clock_hz),
        **record.rates,
        "l2_resident_bytes": l2_resident,
    }
    reasons = {
        "limit_power_w": "the load did not pull the clock down",
        "l2_resident_bytes": why_not,
    }
    notes = [
        f"{name}: {reasons.get(name, 'it could not be measured')}"
        for name, value in facts.items()
        if value is None
    ]
    return facts, notes


def limit_power_w(trace: Trace, highest_hz: float | None) -> float | None:
    """Of a load that reaches the limit, in W; None where the clock was not pulled down."""
    clocks_hz = [hz for _, hz in trace.clock_samples]
    highest_hz = highest_hz or max(clocks_hz, default=0.0)
    if all(hz >= FULL_CLOCK_SHARE * highest_hz for hz in clocks_hz):
        return None
    return best_mean_w(part_of(trace, trace.duration_s / 2, trace.duration_s))


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


# Tests of a board's meters on its traces: each passed, failed, or not made and why. Pure.
#
# A test is named after what it is about ("samples: square wave"); a meter that fails one is not
# used.


CALLED = {
    "samples": "the driver's ring of samples",
    "counter": "the energy counter",
}
STEADY_BOUND = 0.02
"""Limit on how far the counter may lie from the samples on a steady load."""

SQUARE_BOUND = 0.1
"""Limit on how far a meter's mean over a load switched on and off may lie from what its two levels
give.

On two H200 boards ring and counter lay 2 to 6 % low, for a load just switched on draws less than
one that lasts; NVML's instant power, which looks a part of the time, lay 22 and 35 % off.
"""

IN_STEP = 0.05
"""A wave whose period is this near the driver's tick is in step with it."""

MIN_SAMPLES = 10


def tests_of(record: BoardRecord, settle_s: float) -> tuple[MeterTest, ...]:
    """Before a visit the device settles for `settle_s`."""
    return (
        *steady_tests(record.steady, record.off),
        *(square_test(record, meter) for meter in METERS),
        step_test(record, settle_s),
    )


def distrusted(tests: Iterable[MeterTest]) -> dict[str, str]:
    """Return the meters that failed a test, each with the words of the first that it failed."""
    failed: dict[str, str] = {}
    for test in tests:
        meter = test.name.partition(":")[0]
        if test.passed is False and meter in METERS:
            failed.setdefault(meter, test.words)
    return failed


def power_meter(tests: Sequence[MeterTest]) -> tuple[str | None, str]:
    """Return the meter that gives power, and in words which it is, or why there is none."""
    failed = distrusted(tests)
    lost = [f"{CALLED[meter]} is not used ({failed[meter]})" for meter in METERS if meter in failed]
    for meter in METERS:
        named = [test for test in tests if test.name.startswith(f"{meter}:")]
        if meter not in failed and any(test.passed for test in named):
            return meter, "; ".join([f"power comes from {CALLED[meter]}", *lost])
    return None, "; ".join(["no meter gives power", *lost])


# A steady load


def steady_tests(trace: Trace, off: Trace) -> list[MeterTest]:
    """Compare the meters with each other on one steady load; `off` is the trace without it.

    The samples are the measure, where they change with the load; else the counter, whose own test
    cannot be made then.
    """
    found: dict[str, float] = {}
    for meter in METERS:
        high, low = mean_power_w(trace, meter), mean_power_w(off, meter) or 0.0
        if high is not None and high >= STANDS_OUT * low:
            found[meter] = high
    return [_steady_test(trace, meter, found) for meter in METERS]


def _steady_test(trace: Trace, meter: str, found: Mapping[str, float]) -> MeterTest:
    name = f"{meter}: steady load"
    if meter not in found:
        if meter not in trace.answering:
            return _not_made(name, f"the driver does not report {CALLED[meter]}")
        words = f"{CALLED[meter]} hardly changed in {trace.duration_s:.1f} s of load"
        return MeterTest(name, False, None, STEADY_BOUND, words)
    words = f"{CALLED[meter]} reads {found[meter]:.1f} W on a steady load"
    measure = next(iter(found))
    if meter == measure:
        return _not_made(name, f"{words}, and nothing says whether that is right")
    apart = found[meter] / found[measure] - 1
    words += f", {CALLED[measure]} {found[measure]:.1f} W: {_percent(apart)}"
    return MeterTest(name, abs(apart) <= STEADY_BOUND, abs(apart), STEADY_BOUND, words)


# A load switched on and off


def square_test(record: BoardRecord, meter: str) -> MeterTest:
    """Compare a meter's mean over loads switched on and off with what its two levels give.

    A meter that looks a part of the time alone sees too much or too little of a load whose period
    is near its own. A wave of the very period in which the driver samples shows every sample the
    same phase, so no mean of samples is right there: it is reported, and decides nothing.
    """
    name = f"{meter}: square wave"
    high = mean_power_w(record.steady, meter)
    low = mean_power_w(record.off, meter)
    if high is None or low is None:
        return _not_made(name, f"{CALLED[meter]} gave no level to compare with")
    if high < STANDS_OUT * low:
        return _not_made(name, f"{CALLED[meter]} does not tell the load from its absence")
    ratios = {}
    for wave in record.squares:
        ratio = _wave_ratio(wave, meter, rise_of(record)[0], (low, high))
        if ratio is not None:
            ratios[wave.period_s] = ratio - 1
    tick_s = period_s(record.steady.power_samples)
    in_step = {p: ratios.pop(p) for p in list(ratios) if tick_s and abs(p / tick_s - 1) <= IN_STEP}
    if not ratios:
        return _not_made(name, f"{CALLED[meter]} saw too little of any wave")
    period = max(ratios, key=lambda p: abs(ratios[p]))
    words = (
        f"of {len(ratios)} loads that are switched on and off, {CALLED[meter]} is farthest off at "
        f"a period of {1e3 * period:.0f} ms: {_percent(ratios[period])} of what its two levels give"
    )
    for p, ratio in in_step.items():
        words += f"; in step with the driver's samples, at {1e3 * p:.0f} ms, {_percent(ratio)}"
    worst = abs(ratios[period])
    return MeterTest(name, worst <= SQUARE_BOUND, worst, SQUARE_BOUND, words)


def _wave_ratio(
    wave: Wave, meter: str, lag_s: float | None, levels_w: tuple[float, float]
) -> float | None:
    """Return seen over expected power of one wave, over the time that the meter covers."""
    start_s, end_s = wave.on[0][0], wave.on[-1][1]
    if meter == "counter":
        points = [
            (expected_energy_j(wave.on, levels_w, start_s, t), joules)
            for t, joules in wave.trace.counter_edges
            if start_s <= t <= end_s
        ]
        return line_through(points)[0] if len(points) >= MIN_EDGES else None
    # A sample shows the tick around the moment that its lag leads back to.
    half_s = (period_s(wave.trace.power_samples) or 0.0) / 2
    moved = [(t - (lag_s or 0.0), w) for t, w in wave.trace.power_samples]
    kept = [(t, w) for t, w in moved if start_s <= t - half_s and t + half_s <= end_s]
    if len(kept) < MIN_SAMPLES:
        return None
    start_s, end_s = kept[0][0] - half_s, kept[-1][0] + half_s
    expected_w = expected_energy_j(wave.on, levels_w, start_s, end_s) / (end_s - start_s)
    return statistics.fmean(w for _, w in kept) / expected_w


def step_test(record: BoardRecord, settle_s: float) -> MeterTest:
    name = "samples: step"
    if len(record.step.trace.power_samples) < MIN_SAMPLES:
        return _not_made(name, "the driver gave no samples")
    _, response_s = rise_of(record)
    if response_s is None:
        words = "the samples do not follow a load that is switched on and off"
        return MeterTest(name, False, None, settle_s, words)
    words = (
        f"after a load is switched on the samples rise from 10 to 90 % in {1e3 * response_s:.0f} "
        f"ms; a visit lets them settle for {1e3 * settle_s:.0f} ms"
    )
    return MeterTest(name, response_s <= settle_s, response_s, settle_s, words)


def _not_made(name: str, why: str) -> MeterTest:
    return MeterTest(name, None, None, None, f"not made: {why}")


def _percent(apart: float) -> str:
    return f"{100 * apart:+.1f} %"
