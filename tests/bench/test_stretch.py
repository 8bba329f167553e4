"""Stretches on the processor: windows, gaps, and a meter beside them."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from opdb.bench import replay
from opdb.bench import replay as stretches
from opdb.bench.replay import MIN_REPLAYS, QUEUE_DEPTH, CpuClock, Observation, Timing, observe
from opdb.meters import NoMeter, Reading

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
REPLAY_S = 0.004


def busy() -> None:
    end = time.perf_counter() + REPLAY_S
    while time.perf_counter() < end:
        pass


class Noting(CpuClock):
    def __init__(self) -> None:
        self.marks: list[float] = []

    def mark(self) -> float:
        self.marks.append(super().mark())
        return self.marks[-1]


def seen(timing: Timing, calls: int = 10) -> Observation:
    return observe(busy, calls, CpuClock(), NoMeter("none"), timing)


def test_a_window_is_as_long_as_asked_and_full_of_replays() -> None:
    clock = Noting()
    began_s = time.perf_counter()
    stretch = observe(busy, 10, clock, NoMeter("none"), Timing(0.01, 0.06)).stretch
    assert 0.06 <= stretch.duration_s <= time.perf_counter() - began_s
    steps = [b - a for a, b in pairwise(clock.marks)]
    count = len(stretch.replay_times_s)
    after = steps.index(stretch.replay_times_s[0])
    assert steps[after : after + count] == list(stretch.replay_times_s), "none left out"
    assert len(steps) - after - count == QUEUE_DEPTH, "the queue was full to the end"
    assert all(t >= REPLAY_S * 0.99 for t in stretch.replay_times_s)
    assert (stretch.busy_share, stretch.calls_per_replay) == (1.0, 10)


class Idle(CpuClock):
    """A device that is done with everything as soon as it is issued."""

    def reached(self, mark: float) -> bool:
        return True


def test_replays_that_the_device_waited_for_are_counted() -> None:
    idle = observe(busy, 10, Idle(), NoMeter("none"), Timing(0.01, 0.03))
    assert (idle.waited_share, idle.outrun_share) == (1.0, 1.0)
    here = seen(Timing(0.01, 0.03))
    assert (here.waited_share, here.outrun_share) == (0.0, 0.0)


class Issued:
    """Counts the replays of `busy` that were issued."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self) -> None:
        self.replays += 1
        busy()


def test_of_a_replay_that_outlasts_the_window_one_settles_and_one_is_timed() -> None:
    issued = Issued()
    timing = Timing(0.001, REPLAY_S / 2, long=True)
    stretch = observe(issued, 1, CpuClock(), NoMeter("none"), timing).stretch
    assert issued.replays == 2
    [replay_s] = stretch.replay_times_s
    assert min(replay_s, stretch.duration_s) >= REPLAY_S * 0.99 and stretch.busy_share == 1.0


def test_a_replay_that_proves_shorter_is_timed_as_any_other() -> None:
    issued = Issued()
    asked = Timing(0.01, 0.06)
    found = observe(issued, 1, CpuClock(), NoMeter("none"), replace(asked, long=True)).stretch
    usual = seen(asked, 1).stretch
    assert min(len(found.replay_times_s), len(usual.replay_times_s)) > MIN_REPLAYS
    assert issued.replays >= 1 + len(found.replay_times_s) + QUEUE_DEPTH
    assert found.duration_s >= asked.window_s


class Behind(CpuClock):
    """A device that is done so long after the host has issued a replay, which takes the host 2 s.

    `now_s` is the time there.
    """

    def __init__(self, late_s: float) -> None:
        self.now_s, self._done_s, self._late_s = 1.0, 0.0, late_s

    def issue(self) -> None:
        self.now_s += 2.0
        self._done_s = self.now_s + self._late_s

    def mark(self) -> float:
        return max(self.now_s, self._done_s)

    def wait(self, mark: float) -> None:
        self.now_s = max(self.now_s, mark)

    def reached(self, mark: float) -> bool:
        return mark <= self.now_s


@pytest.mark.parametrize(("late_s", "outrun"), [(0.0, 1.0), (0.125, 1.0), (0.5, 0.0), (9.0, 0.0)])
def test_a_device_keeps_up_with_the_host_that_is_done_soon_after_it(
    late_s: float, outrun: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, timing = Behind(late_s), Timing(0.5, 1.0, long=True)
    monkeypatch.setattr(stretches, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    found = observe(clock.issue, 1, clock, NoMeter("none"), timing)
    assert found.stretch.replay_times_s == (2.0 + late_s,) == (found.stretch.duration_s,)
    assert (found.waited_share, found.outrun_share) == (0.0, outrun)


def test_gaps_lower_the_busy_share_and_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of the test's own: under load a real one says little."""
    now_s = [1_000.0]

    def pass_by(seconds: float) -> None:
        now_s[0] += seconds

    clock = SimpleNamespace(
        monotonic=lambda: now_s[0], perf_counter=lambda: now_s[0], sleep=pass_by
    )
    for module in (replay, stretches):
        monkeypatch.setattr(module, "time", clock)
    timing = Timing(0.01, 0.08, gap_s=REPLAY_S / 2)
    found = observe(lambda: pass_by(REPLAY_S), 1, CpuClock(), NoMeter("none"), timing).stretch
    assert found.replay_times_s == pytest.approx((REPLAY_S,) * 14), "14 of 6 ms are over 80 ms"
    assert found.duration_s == pytest.approx(14 * 1.5 * REPLAY_S)
    assert found.busy_share == pytest.approx(1 / 1.5)


class Asked(NoMeter):
    """Notes for which windows it was asked."""

    def __init__(self) -> None:
        super().__init__("none")
        self.windows: list[tuple[float, float, float]] = []

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        self.windows.append((start_s, end_s, lag_s))
        return super().window(start_s, end_s, lag_s=lag_s)


@pytest.mark.parametrize("gap_s", [0.0, 0.002])
def test_the_meter_is_asked_for_the_timed_window(gap_s: float) -> None:
    meter = Asked()
    began_s = time.monotonic()
    stretch = observe(busy, 1, CpuClock(), meter, Timing(0.03, 0.03, gap_s, lag_s=0.017)).stretch
    [(start_s, end_s, lag_s)] = meter.windows
    assert lag_s == 0.017
    assert end_s - start_s == pytest.approx(stretch.duration_s)
    assert start_s >= began_s + 0.03, "settling is outside the window"
    assert end_s <= time.monotonic()


def test_utilization_is_kept_as_the_meter_tells_it() -> None:
    class Busy(NoMeter):
        def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
            return Reading(utilization=0.97)

    found = observe(busy, 1, CpuClock(), Busy("none"), Timing(0.0, 0.01))
    assert found.stretch.utilization == 0.97
    assert seen(Timing(0.0, 0.01)).stretch.utilization is None
