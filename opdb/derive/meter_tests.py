"""Tests of a board's meters on its traces: each passed, failed, or not made and why. Pure.

A test is named after what it is about ("samples: square wave"); a meter that fails one is not used.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from opdb.derive.traces import (
    FULL_CLOCK_SHARE,
    METERS,
    MIN_EDGES,
    POWER_METERS,
    STANDS_OUT,
    BoardRecord,
    Ratings,
    Rise,
    Wave,
    best_mean_w,
    expected_energy_j,
    line_through,
    mean_power_w,
    part_of,
    period_s,
    rise_of,
    series_of,
)
from opdb.records import MeterTest, Trace

CALLED = {
    "samples": "the driver's ring of samples",
    "counter": "the energy counter",
    "instant": "the instant power",
}
STEADY_BOUND = 0.02
"""Limit on how far a meter may lie from the middle one on a steady load, and a counter that is
polled from one that is not."""

SQUARE_BOUND = 0.1
"""Limit on how far a meter's mean over a load switched on and off may lie from what its two levels
give.

On two H200 boards ring and counter lay 2 to 6 % low, for a load just switched on draws less than
one that lasts; instant power, which looks a part of the time, lay 22 and 35 % off.
"""

IN_STEP = 0.05
"""A wave whose period is this near the driver's tick is in step with it."""

STABLE_BOUND = 0.02
"""Limit on how far the two halves of the base power's window may lie apart."""

MIN_SAMPLES = 10


def tests_of(record: BoardRecord, ratings: Ratings) -> tuple[MeterTest, ...]:
    """Return every test of the board's meters, passed, failed, or why it could not be made."""
    return (
        *steady_tests(record.steady["usual"]),
        polling_test(record.steady),
        *(square_test(record, meter) for meter in METERS),
        step_test(record, ratings.settle_s),
        base_power_test(record.idle),
        idle_clock_test(record.idle, ratings.max_clock_hz),
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
    for meter in POWER_METERS:
        named = [test for test in tests if test.name.startswith(f"{meter}:")]
        if meter not in failed and any(test.passed for test in named):
            return meter, "; ".join([f"power comes from {CALLED[meter]}", *lost])
    return None, "; ".join(["no meter gives power", *lost])


# A steady load


def steady_tests(trace: Trace) -> list[MeterTest]:
    """Compare the meters with each other on one steady load.

    Of three the middle one is the measure, so that one alone can be found wrong; of two it is the
    samples, else the counter, whose own test cannot be made then.
    """
    found: dict[str, float] = {}
    for meter in METERS:
        mean = mean_power_w(trace, meter)
        if mean is not None:
            found[meter] = mean
    middle = _middle(found)
    return [_steady_test(trace, meter, found, middle) for meter in METERS]


def _middle(found: Mapping[str, float]) -> str | None:
    if len(found) == len(METERS):
        return sorted(found, key=lambda meter: found[meter])[1]
    return next(iter(found), None)


def _steady_test(
    trace: Trace, meter: str, found: Mapping[str, float], middle: str | None
) -> MeterTest:
    name = f"{meter}: steady load"
    if meter not in found:
        if meter not in trace.answering:
            return _not_made(name, f"the driver does not report {CALLED[meter]}")
        words = f"{CALLED[meter]} hardly changed in {trace.duration_s:.1f} s of load"
        return MeterTest(name, False, None, STEADY_BOUND, words)
    words = f"{CALLED[meter]} reads {found[meter]:.1f} W on a steady load"
    if middle is None or (meter == middle and len(found) < len(METERS)):
        return _not_made(name, f"{words}, and nothing says whether that is right")
    apart = found[meter] / found[middle] - 1
    if meter == middle:
        words += ", in the middle of three meters"
    else:
        words += f", {CALLED[middle]} {found[middle]:.1f} W: {_percent(apart)}"
    return MeterTest(name, abs(apart) <= STEADY_BOUND, abs(apart), STEADY_BOUND, words)


def polling_test(steady: Mapping[str, Trace]) -> MeterTest:
    """Compare the counter read often with the counter left alone, each against the samples.

    Some boards under-count when they are read fast (up to 95 % on an RTX 4090, arXiv 2312.02741).
    """
    name = "counter: polling"
    alone = _against_samples(steady["none"])
    if alone is None:
        return _not_made(name, "the energy counter gave too few edges when it was left alone")
    apart = {}
    for how in ("usual", "fast"):
        seen = _against_samples(steady[how])
        apart[how] = (0.0 if seen is None else seen / alone) - 1
    worst = max(map(abs, apart.values()))
    words = (
        "against the counter left alone, reading it every few milliseconds changes its power by "
        f"{_percent(apart['usual'])}, back to back by {_percent(apart['fast'])}"
    )
    return MeterTest(name, worst <= STEADY_BOUND, worst, STEADY_BOUND, words)


def _against_samples(trace: Trace) -> float | None:
    """Return the counter's power over the samples' (over 1 W where there are no samples)."""
    counter, samples = (mean_power_w(trace, meter) for meter in ("counter", "samples"))
    if not counter:
        return None
    return counter / samples if samples else counter


# A load switched on and off


def square_test(record: BoardRecord, meter: str) -> MeterTest:
    """Compare a meter's mean over loads switched on and off with what its two levels give.

    A meter that looks a part of the time alone sees too much or too little of a load whose period
    is near its own. A wave of the very period in which the driver samples shows every sample the
    same phase, so no mean of samples is right there: it is reported, and decides nothing.
    """
    name = f"{meter}: square wave"
    high = mean_power_w(record.steady["usual"], meter)
    low = mean_power_w(record.off, meter)
    if high is None or low is None:
        return _not_made(name, f"{CALLED[meter]} gave no level to compare with")
    if high < STANDS_OUT * low:
        return _not_made(name, f"{CALLED[meter]} does not tell the load from its absence")
    ratios = {}
    for wave in record.squares:
        ratio = _wave_ratio(wave, meter, rise_of(record), (low, high))
        if ratio is not None:
            ratios[wave.period_s] = ratio - 1
    tick_s = period_s(record.steady["usual"].power_samples)
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


def _wave_ratio(wave: Wave, meter: str, rise: Rise, levels_w: tuple[float, float]) -> float | None:
    """Return seen over expected power of one wave, over the time that the meter covers."""
    start_s, end_s = wave.on[0][0], wave.on[-1][1]
    if meter == "counter":
        points = [
            (expected_energy_j(wave.on, levels_w, start_s, t), joules)
            for t, joules in wave.trace.counter_edges
            if start_s <= t <= end_s
        ]
        return line_through(points)[0] if len(points) >= MIN_EDGES else None
    samples = series_of(wave.trace, meter)
    if meter == "samples":
        # A sample shows the tick around the moment that its lag leads back to.
        half_s = (period_s(samples) or 0.0) / 2
        moved = [(t - (rise.lag_s or 0.0), w) for t, w in samples]
        kept = [(t, w) for t, w in moved if start_s <= t - half_s and t + half_s <= end_s]
        if kept:
            start_s, end_s = kept[0][0] - half_s, kept[-1][0] + half_s
    else:
        kept = [(t, w) for t, w in samples if start_s <= t <= end_s]
    if len(kept) < MIN_SAMPLES:
        return None
    expected_w = expected_energy_j(wave.on, levels_w, start_s, end_s) / (end_s - start_s)
    return statistics.fmean(w for _, w in kept) / expected_w


def step_test(record: BoardRecord, settle_s: float) -> MeterTest:
    """Compare the time in which samples follow a load with the time that a visit allows them."""
    name = "samples: step"
    if len(record.step.trace.power_samples) < MIN_SAMPLES:
        return _not_made(name, "the driver gave no samples")
    response_s = rise_of(record).response_s
    if response_s is None:
        words = "the samples do not follow a load that is switched on and off"
        return MeterTest(name, False, None, settle_s, words)
    words = (
        f"after a load is switched on the samples rise from 10 to 90 % in {1e3 * response_s:.0f} "
        f"ms; a visit lets them settle for {1e3 * settle_s:.0f} ms"
    )
    return MeterTest(name, response_s <= settle_s, response_s, settle_s, words)


# No load


def base_power_test(idle: Trace) -> MeterTest:
    """Compare the two halves of a window in which nothing ran."""
    name = "board: base power"
    halves = [
        best_mean_w(part_of(idle, share * idle.duration_s, (share + 0.5) * idle.duration_s))
        for share in (0.0, 0.5)
    ]
    if halves[0] is None or halves[1] is None:
        return _not_made(name, "no meter saw enough of the board at rest")
    apart = halves[1] / halves[0] - 1
    words = (
        f"with nothing running the board draws {halves[0]:.1f} W and, {idle.duration_s / 2:.1f} s "
        f"later, {halves[1]:.1f} W: {_percent(apart)}"
    )
    return MeterTest(name, abs(apart) <= STABLE_BOUND, abs(apart), STABLE_BOUND, words)


def idle_clock_test(idle: Trace, max_clock_hz: float | None) -> MeterTest:
    """Look whether the clock stays up while a context is open and nothing runs."""
    name = "board: clock at rest"
    if not max_clock_hz or not idle.clock_samples:
        return _not_made(name, "the driver does not report the clock")
    lowest = min(hz for _, hz in idle.clock_samples)
    words = (
        f"with a context open and nothing running the clock is at {lowest / 1e6:.0f} of "
        f"{max_clock_hz / 1e6:.0f} MHz or more; base power is meant with clocks up"
    )
    share = lowest / max_clock_hz
    return MeterTest(name, share >= FULL_CLOCK_SHARE, share, FULL_CLOCK_SHARE, words)


def _not_made(name: str, why: str) -> MeterTest:
    return MeterTest(name, None, None, None, f"not made: {why}")


def _percent(apart: float) -> str:
    return f"{100 * apart:+.1f} %"
