"""What failed a board's tests does not reach a measurement, and the reason does."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.meters import NoMeter, Reading, TrustedMeter, implausible
from tests.meters.faulty import FAULTS, FaultyMeter
from tests.meters.replay import ReplayMeter

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
LIMIT_W = 700.0


class Whole:
    """A meter that always sees the same."""

    closed = False

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        assert (start_s, end_s, lag_s) == (1.0, 2.0, 0.016)
        return Reading(((0.1, 300.0),), ((0.0, 0.0), (0.1, 30.0)), (1.98e9,), 40.0, ("cap",))

    def close(self) -> None:
        self.closed = True


def window(failed: dict[str, str]) -> Reading:
    return TrustedMeter(Whole(), failed).window(1.0, 2.0, lag_s=0.016)


def test_what_failed_is_left_out_and_nothing_else() -> None:
    whole = Whole().window(1.0, 2.0, lag_s=0.016)
    assert window({}) == window({"instant": "aliases"}) == whole
    without = window({"counter": "stuck"})
    assert (without.power_samples, without.counter_edges) == (whole.power_samples, ())
    assert without.reason is None
    without = window({"samples": "slow"})
    assert (without.power_samples, without.counter_edges) == ((), whole.counter_edges)
    assert without.reason is None, "the counter gives power"
    assert without.clock_samples_hz == whole.clock_samples_hz


def test_without_any_power_every_reason_is_told() -> None:
    reading = window({"samples": "slow", "counter": "stuck"})
    assert (reading.power_samples, reading.counter_edges) == ((), ())
    assert reading.reason == "samples failed a test: slow; counter failed a test: stuck"
    nothing = TrustedMeter(NoMeter("no driver"), {"samples": "slow"}).window(0.0, 1.0)
    assert nothing.reason == "samples failed a test: slow; no driver"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_no_board_can_have_drawn_is_no_power(fault: str) -> None:
    change, said = FAULTS[fault]
    faulty = TrustedMeter(FaultyMeter(ReplayMeter(TRACE), change), {}, LIMIT_W)
    reading = faulty.window(3.7, 4.9)
    assert (reading.power_samples, reading.counter_edges) == ((), ())
    assert reading.reason.startswith(said)
    assert reading.clock_samples_hz, "what else it says stays"


def drawn(watts: tuple[float, ...], joules: tuple[float, ...]) -> Reading:
    """A window of samples every 10 ms and an update of the counter every 250 ms."""
    return Reading(
        tuple((n / 100, w) for n, w in enumerate(watts)),
        tuple((0.5 + n / 4, j) for n, j in enumerate(joules)),
    )


CONTRADICTS = "the meters contradict each other: samples {} W, counter {}"


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (drawn((1400.0,), ()), None),
        (drawn((0.0, 1401.0), ()), "the meter reads 1401 W, which this board cannot draw"),
        (drawn((0.5, -1.0), ()), "the meter reads -1 W, which this board cannot draw"),
        (drawn((0.0, 0.0), ()), "the meter reads 0 W all the time"),
        (drawn((), (0.0, 350.0)), None),
        (drawn((), (0.0, 350.5)), "the energy counter reads 1402 W, which this board cannot draw"),
        (drawn((300.0,), (0.0, 90.0, 60.0)), "the energy counter went back by 30 J"),
        (drawn((300.0,), (0.0, 500.0, 1000.0)), None),  # too few updates to be held against it
        (drawn((200.0, 400.0), (0.0, 150.0, 150.0, 450.0)), None),
        (drawn((200.0, 400.0), (0.0, 0.0, 90.0, 453.0)), CONTRADICTS.format(300, 604)),
        (drawn((200.0, 400.0), (0.0, 9.0, 9.0, 108.0)), CONTRADICTS.format(300, 144)),
    ],
)
def test_what_a_board_of_700_w_can_have_drawn(reading: Reading, reason: str | None) -> None:
    assert implausible(reading, 2 * LIMIT_W) == reason
