"""Loads of known duty, read both ways: on a load that sleeps and a meter that knows when."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from benchmarks import square_waves
from benchmarks.square_waves import Bench, Burst, Load, busy_power_w, expected_ratio, polled, show
from opdb.bench.replay import CpuClock
from opdb.errors import CannotMeasureError
from opdb.meters import NoMeter, Reading

BUSY_W, IDLE_W = 500.0, 100.0
REPLAY_S = 2e-3
PERIOD_S = 1e-3


class Board:
    """A board that draws 500 W while its load runs, and 100 W else; it is its own meter."""

    name = "board"

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []

    def issue(self) -> None:
        began_s = time.monotonic()
        time.sleep(REPLAY_S)
        self.busy.append((began_s, time.monotonic()))

    def power_w(self, at_s: float) -> float:
        return BUSY_W if any(a <= at_s <= b for a, b in reversed(self.busy)) else IDLE_W

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        count = int((end_s - start_s) / PERIOD_S)
        times = [i * PERIOD_S for i in range(count)]
        busy_s = sum(max(0.0, min(b, end_s) - max(a, start_s)) for a, b in self.busy)
        joules = BUSY_W * busy_s + IDLE_W * (end_s - start_s - busy_s)
        return Reading(
            power_samples=tuple((t, self.power_w(start_s + t)) for t in times),
            counter_edges=((0.0, 0.0), (end_s - start_s, joules)),
        )

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"WAVE_S": 0.3, "BURST_S": 0.02, "RISE_S": 0.02, "REST_S": 0.02}.items():
        monkeypatch.setattr(square_waves, name, seconds)
    monkeypatch.setattr(square_waves, "BURSTS_S", (0.1,))


@pytest.mark.usefixtures("brief")
def test_opdb_finds_the_power_of_the_busy_time_and_a_mean_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = Board()
    load = Load("sleeps", board.issue, 1, REPLAY_S)
    bench = Bench(CpuClock(), board, lambda: board.power_w(time.monotonic()), IDLE_W, 0.0)
    known_w = bench.known_w(load, 0.1)
    assert known_w == pytest.approx(BUSY_W, rel=0.15), "a loop has short pauses"
    found = [*bench.waves(load, BUSY_W)]
    assert [each.form for each in found] == ["wave"] * 3 + ["burst"]
    for each in found:
        assert each.opdb_ratio == pytest.approx(1, abs=0.2), each
        assert each.polls >= 1 and IDLE_W <= (each.polled_w or 0) <= BUSY_W
    duties = [each.duty for each in found[:3]]
    assert all(a > b for a, b in pairwise(duties))
    assert found[2].expected < 0.6
    show(found)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 1 + len(found) and shown[1].startswith("sleeps")


def test_a_mean_over_idle_time_is_too_low_by_what_the_duty_says() -> None:
    assert expected_ratio(0.2, 500, 100) == pytest.approx(0.36)
    assert expected_ratio(1.0, 500, 100) == 1
    assert busy_power_w(0.2 * 500 + 0.8 * 100, 100, 0.2) == pytest.approx(500)
    assert busy_power_w(None, 100, 0.2) is None


def test_a_burst_is_whole_replays() -> None:
    seen: list[int] = []
    load = Load("l", lambda: seen.append(1), 5, 0.01)
    burst = Burst.of(load, 0.1)
    burst.issue()
    assert (len(seen), burst.calls) == (10, 50)
    assert burst.length_s == pytest.approx(0.1)
    assert Burst.of(load, 1e-4).calls == 5, "one at least"


def test_polling_begins_at_once_and_ends_with_the_block() -> None:
    with polled(lambda: 7.0, 0.01) as readings:
        time.sleep(0.05)
    count = len(readings)
    assert count >= 2 and set(readings) == {7.0}
    time.sleep(0.03)
    assert len(readings) == count


def test_a_board_without_a_counter_is_refused() -> None:
    bench = Bench(CpuClock(), NoMeter("none here"), lambda: 0.0, 100.0, 0.0)
    with pytest.raises(CannotMeasureError, match="energy counter did not move"):
        bench.known_w(Load("l", lambda: time.sleep(1e-3), 1, 1e-3), 0.02)
