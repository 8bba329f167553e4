"""One steady stretch of replays: events time it, the meter watches it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from opdb.bench.replay import Clock
from opdb.meters import Meter, Reading
from opdb.records import Stretch

QUEUE_DEPTH = 3
"""Replays queued ahead of the device, so that it never waits for the issuing thread."""

MIN_REPLAYS = 3

SOON_SHARE = 0.1
"""A device that is done with a long replay within this share of it after the host has issued it
keeps up with the host."""


@dataclass(frozen=True)
class Timing:
    """How long a stretch settles and how long its window is, in seconds.

    The window holds `least` replays, however long they take. Where one may be `long`, the first is
    waited for: if it takes longer than the window, it has settled the device, and the window is one
    more.

    `gap_s` is slept after each replay, to keep an operator that draws more than the power limit
    allows at full clock; `lag_s` is how late the meter's samples are.
    """

    settle_s: float
    window_s: float
    gap_s: float = 0.0
    lag_s: float = 0.0
    least: int = MIN_REPLAYS
    long: bool = False


@dataclass(frozen=True)
class Observation:
    """A stretch and what the meter said beside it.

    `waited_share` of its replays were issued when the device had nothing left to do. `outrun_share`
    were done before the host, having queued QUEUE_DEPTH more, came to wait for them (of a long one,
    soon after the host had issued it): where nearly all were, the device is faster than the host
    issues. (A replay of many launches is seldom done by the moment the next is issued, however long
    the device waited for each of them.)
    """

    stretch: Stretch
    reading: Reading
    waited_share: float = 0.0
    outrun_share: float = 0.0


def observe(
    issue: Callable[[], object], calls: int, clock: Clock, meter: Meter, timing: Timing
) -> Observation:
    """Replay until the window is full and return the raw record.

    `issue` enqueues one replay of `calls` calls.
    """
    run = _with_gaps if timing.gap_s > 0 else _back_to_back
    times, start_s, end_s, idle = run(issue, clock, timing)
    reading = meter.window(start_s, end_s, lag_s=timing.lag_s)
    busy = min(1.0, sum(times) / (end_s - start_s)) if timing.gap_s > 0 else 1.0
    stretch = Stretch(
        calls_per_replay=calls,
        replay_times_s=tuple(times),
        duration_s=end_s - start_s,
        busy_share=busy,
        power_samples=reading.power_samples,
        counter_edges=reading.counter_edges,
        clock_samples_hz=reading.clock_samples_hz,
        temperature_c=reading.temperature_c,
        utilization=reading.utilization,
    )
    return Observation(stretch, reading, idle.waited / len(times), idle.outrun / len(times))


@dataclass
class _Idle:
    """How often the queue was found empty, and how often its oldest replay was found done."""

    waited: int = 0
    outrun: int = 0


def _back_to_back(
    issue: Callable[[], object], clock: Clock, timing: Timing
) -> tuple[list[float], float, float, _Idle]:
    """Keep the queue full; the window runs from one completed replay to another.

    Returns the replays' times, the window's start and end, and how the queue was found.
    """
    if timing.long and _alone(issue, clock)[0][0] > timing.window_s:
        return _alone(issue, clock)
    began_s = time.monotonic()
    queued: deque[Any] = deque()
    window: list[Any] = []
    start_s = 0.0
    idle = _Idle()
    while True:
        if window and clock.reached(queued[-1]):
            idle.waited += 1
        issue()
        queued.append(clock.mark())
        if len(queued) <= QUEUE_DEPTH:
            continue
        mark = queued.popleft()
        if window and clock.reached(mark):
            idle.outrun += 1
        clock.wait(mark)
        now_s = time.monotonic()
        if window:
            window.append(mark)
            if now_s - start_s >= timing.window_s and len(window) > timing.least:
                break
        elif now_s - began_s >= timing.settle_s:
            window.append(mark)
            start_s = now_s
    for mark in queued:
        clock.wait(mark)
    times = [clock.elapsed_s(a, b) for a, b in pairwise(window)]
    return times, start_s, now_s, idle


def _alone(issue: Callable[[], object], clock: Clock) -> tuple[list[float], float, float, _Idle]:
    """Make one replay and wait for it; returns what `_back_to_back` does."""
    first = clock.mark()
    clock.wait(first)
    start_s = time.monotonic()
    issue()
    issued_s = time.monotonic()
    last = clock.mark()
    clock.wait(last)
    end_s = time.monotonic()
    soon = end_s - issued_s <= SOON_SHARE * (end_s - start_s)
    idle = _Idle(outrun=int(soon and clock.reached(last)))  # a processor never reaches a mark
    return [clock.elapsed_s(first, last)], start_s, end_s, idle


def _with_gaps(
    issue: Callable[[], object], clock: Clock, timing: Timing
) -> tuple[list[float], float, float, _Idle]:
    """Replay, wait, sleep, repeat; only the replays themselves are timed, so none is waited for."""
    began_s = time.monotonic()
    times: list[float] = []
    start_s = 0.0
    while True:
        first = clock.mark()
        issue()
        last = clock.mark()
        clock.wait(last)
        if start_s:
            times.append(clock.elapsed_s(first, last))
        time.sleep(timing.gap_s)
        now_s = time.monotonic()
        if not start_s and now_s - began_s >= timing.settle_s:
            start_s = now_s
        elif start_s and now_s - start_s >= timing.window_s and len(times) >= timing.least:
            return times, start_s, now_s, _Idle()
