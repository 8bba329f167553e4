"""Tests of meters on a trace of a real board, and on boards made so that each test can fail."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from opdb.derive.board_facts import facts_of, limit_times_s, resident_bytes
from opdb.derive.meter_tests import (
    base_power_test,
    distrusted,
    idle_clock_test,
    polling_test,
    power_meter,
    steady_tests,
)
from opdb.derive.meter_tests import tests_of as judged
from opdb.derive.traces import (
    BoardRecord,
    Ratings,
    Wave,
    counter_power_w,
    expected_energy_j,
    mean_power_w,
    period_s,
)
from opdb.records import MeterTest, Series, Trace

MIB = 2**20
STEP_S = 0.0005
TICK_S, UPDATE_S = 0.0204, 0.1
ON_W, OFF_W, IDLE_W = 600.0, 150.0, 120.0
CLOCK_HZ = 1.98e9
RATINGS = Ratings(max_clock_hz=CLOCK_HZ, l2_bytes=60 * MIB, settle_s=0.08)
PERIODS_S = (0.010, 0.020, 0.025, 0.050, 0.100, 0.130)


class Load:
    """The energy that a board has drawn at any moment, summed up in steps of half a millisecond."""

    def __init__(self, watts: Callable[[float], float], duration_s: float) -> None:
        self.duration_s = duration_s
        self._energy_j = [0.0]
        for step in range(round(duration_s / STEP_S)):
            power = watts((step + 0.5) * STEP_S)
            self._energy_j.append(self._energy_j[-1] + power * STEP_S)

    def energy_j(self, at_s: float) -> float:
        if at_s < 0:  # it went on like that before
            return self._energy_j[1] / STEP_S * at_s
        place = min(at_s, self.duration_s) / STEP_S
        low = min(int(place), len(self._energy_j) - 2)
        return self._energy_j[low] + (place - low) * (self._energy_j[low + 1] - self._energy_j[low])

    def mean_w(self, start_s: float, end_s: float) -> float:
        return (self.energy_j(end_s) - self.energy_j(start_s)) / (end_s - start_s)


Sampler = Callable[[Load], Series]


def ticking(period_s: float, looks_s: float | None = None, gain: float = 1.0) -> Sampler:
    """A meter that tells every period the mean of its last `looks_s` (None: of all of it)."""

    def sample(load: Load) -> Series:
        last = int(load.duration_s / period_s)
        return tuple(
            (i * period_s, gain * load.mean_w(i * period_s - (looks_s or period_s), i * period_s))
            for i in range(2, last + 1)
        )

    return sample


def held(period_s: float, looks_s: float) -> Sampler:
    """A ring that ticks as usual, of a sensor that looks a part of each longer period alone."""
    sensor = ticking(period_s, looks_s)

    def sample(load: Load) -> Series:
        seen = sensor(load)
        moments = [t for t, _ in seen]
        ticks = [i * TICK_S for i in range(1, int(load.duration_s / TICK_S) + 1)]
        return tuple((t, seen[bisect_left(moments, t) - 1][1]) for t in ticks if t > moments[0])

    return sample


def counting(gain: float = 1.0) -> Sampler:
    """A counter that rises every 100 ms."""

    def sample(load: Load) -> Series:
        times = [0.03 + i * UPDATE_S for i in range(int(load.duration_s / UPDATE_S))]
        first = load.energy_j(times[0])
        return tuple((t, gain * (load.energy_j(t) - first)) for t in times)

    return sample


def stuck(load: Load) -> Series:
    """A ring that ticks and never tells anything new."""
    return tuple((t, 300.0) for t, _ in ticking(TICK_S)(load))


SOUND_SAMPLES, SOUND_COUNTER, SOUND_INSTANT = ticking(TICK_S), counting(), ticking(UPDATE_S)


@dataclass(frozen=True)
class Made:
    """A board made of meters; the counter may depend on how it is polled. None: it has none."""

    samples: Sampler | None = SOUND_SAMPLES
    counter: Sampler | None = SOUND_COUNTER
    instant: Sampler | None = SOUND_INSTANT
    polled: Mapping[str, Sampler] = field(default_factory=dict)

    def trace(self, load: Load, *, polling: str = "usual", clock: Series = ()) -> Trace:
        meters = {
            "samples": self.samples,
            "counter": self.polled.get(polling, self.counter),
            "instant": self.instant,
        }
        series = {name: sampler(load) if sampler else () for name, sampler in meters.items()}
        return Trace(
            load.duration_s,
            series["samples"],
            series["counter"],
            series["instant"],
            clock or tuple((i * 0.01, CLOCK_HZ) for i in range(int(load.duration_s / 0.01))),
            tuple(name for name, sampler in meters.items() if sampler),
        )

    def wave(self, period_s: float, duration_s: float) -> Wave:
        count = int(duration_s / period_s)
        on = tuple(((i + 0.5) * period_s, (i + 1) * period_s) for i in range(count))
        load = Load(lambda t: ON_W if t % period_s >= period_s / 2 else OFF_W, count * period_s)
        return Wave(period_s, on, self.trace(load))

    def record(self) -> BoardRecord:
        steady = Load(lambda t: ON_W, 3.7)
        late = tuple((i * 0.01, 1.6e9 if 0.3 <= i * 0.01 < 2.2 else CLOCK_HZ) for i in range(300))
        return BoardRecord(
            steady={how: self.trace(steady, polling=how) for how in ("none", "usual", "fast")},
            off=self.trace(Load(lambda t: OFF_W, 1.6)),
            step=self.wave(0.5, 4.0),
            squares=tuple(self.wave(period, 1.6) for period in PERIODS_S),
            idle=self.trace(Load(lambda t: IDLE_W, 2.4)),
            limit=self.trace(Load(lambda t: 690.0 if t < 2.0 else IDLE_W, 3.0), clock=late),
            limit_end_s=2.0,
            rates={"copy_bytes_per_s": 4e12, "matmul_float64_flops_per_s": None},
            passes=reads(30 * MIB),
        )


def reads(resident: float, cached: float = 6e12, beyond: float = 4e12) -> Series:
    """Passes over buffers of which so much stays in the cache: all, then less and less."""
    found = []
    size = 4.0 * MIB
    while size < 121 * MIB:
        missed = min(1.0, max(0.0, (size / resident - 0.8) / 0.4))
        found.append((size, 2e-6 + size * ((1 - missed) / cached + missed / beyond)))
        size *= 1.08
    return tuple(found)


def failures(made: Made) -> dict[str, MeterTest]:
    return {t.name: t for t in judged(made.record(), RATINGS) if t.passed is False}


def test_a_sound_board_passes_every_test() -> None:
    tests = judged(Made().record(), RATINGS)
    assert {test.name: test.passed for test in tests} == dict.fromkeys(
        (
            "samples: steady load",
            "counter: steady load",
            "instant: steady load",
            "counter: polling",
            "samples: square wave",
            "counter: square wave",
            "instant: square wave",
            "samples: step",
            "board: base power",
            "board: clock at rest",
        ),
        True,
    )
    assert distrusted(tests) == {}
    assert power_meter(tests) == ("samples", "power comes from the driver's ring of samples")


def test_facts_of_a_sound_board() -> None:
    facts, notes = facts_of(Made().record(), RATINGS)
    assert facts == {
        "sample_period_s": pytest.approx(TICK_S),
        "counter_period_s": pytest.approx(UPDATE_S),
        "instant_period_s": pytest.approx(UPDATE_S),
        "sample_lag_s": pytest.approx(TICK_S / 2, abs=0.002),
        "step_response_10_90_s": pytest.approx(1.2 * TICK_S, rel=0.4),
        "base_power_w": pytest.approx(IDLE_W),
        "limit_pull_down_s": pytest.approx(0.3),
        "limit_recover_s": pytest.approx(0.2),
        "limit_power_w": pytest.approx(690, rel=0.01),
        "copy_bytes_per_s": 4e12,
        "matmul_float64_flops_per_s": None,
        "l2_resident_bytes": pytest.approx(30 * MIB, rel=0.03),
    }
    assert notes == ["matmul_float64_flops_per_s: it could not be measured"]


@pytest.mark.parametrize(
    ("made", "failed", "words"),
    [
        (Made(samples=held(0.1, 0.025)), "samples: square wave", "switched on and off"),
        (Made(instant=ticking(0.1, 0.025)), "instant: square wave", "the instant power is far"),
        (Made(samples=ticking(TICK_S, 1.0)), "samples: step", "do not follow a load"),
        (Made(samples=ticking(TICK_S, 0.15)), "samples: step", "settle for 80 ms"),
        (Made(samples=stuck), "samples: step", "follow"),
        (Made(samples=ticking(TICK_S, gain=1.05)), "samples: steady load", "630.0 W .*600.0 W: "),
        (Made(counter=counting(0.9)), "counter: steady load", r"540.0 W .*600.0 W: -10.0 %"),
        (Made(counter=lambda load: ()), "counter: steady load", "hardly changed in 3.7 s"),
        (Made(counter=lambda load: (), instant=None), "counter: steady load", "hardly changed"),
        (Made(instant=lambda load: ((0.0, 80.0),)), "instant: steady load", "hardly changed"),
        (Made(polled={"fast": counting(0.05)}), "counter: polling", "back to back by -95.0 %"),
        (Made(polled={"fast": lambda load: ()}), "counter: polling", "back to back by -100.0 %"),
        (Made(polled={"none": counting(1.13)}), "counter: polling", r"milliseconds .* -11.5 %"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_meter_is_found_and_said(made: Made, failed: str, words: str) -> None:
    found = failures(made)
    assert failed in found
    test = found[failed]
    assert test.bound is not None and (test.value is None or test.value > test.bound)
    assert re.search(words, test.words), test.words
    meter = failed.partition(":")[0]
    assert {name.partition(":")[0] for name in found} == {meter}, found
    assert set(distrusted(found.values())) == {meter}


def test_of_two_meters_the_samples_are_the_measure() -> None:
    tests = judged(Made(counter=counting(0.9), instant=None).record(), RATINGS)
    by_name = {test.name: test for test in tests}
    assert by_name["samples: steady load"].passed is None
    assert "nothing says" in by_name["samples: steady load"].words
    assert set(distrusted(tests)) == {"counter"}
    assert power_meter(tests)[0] == "samples"


def test_what_a_board_does_not_report_is_no_failure() -> None:
    made = Made(samples=None, counter=None, instant=None)
    tests = judged(made.record(), RATINGS)
    assert {test.passed for test in tests} == {None, True}
    assert [test.name for test in tests if test.passed] == ["board: clock at rest"]
    assert all(test.words.startswith("not made: ") for test in tests if test.passed is None)
    assert power_meter(tests) == (None, "no meter gives power")
    facts, notes = facts_of(made.record(), RATINGS)
    missing = {name for name, value in facts.items() if value is None}
    assert {note.partition(":")[0] for note in notes} == missing
    assert {"sample_period_s", "base_power_w", "limit_power_w"} <= missing
    assert facts["limit_pull_down_s"] == pytest.approx(0.3)


def test_the_counter_gives_power_where_the_samples_failed() -> None:
    record = Made(samples=held(0.1, 0.025)).record()
    meter, words = power_meter(judged(record, RATINGS))
    assert meter == "counter"
    assert "the driver's ring of samples is not used (of " in words
    both = Made(samples=held(0.1, 0.025), polled={"fast": counting(0.5)}).record()
    meter, words = power_meter(judged(both, RATINGS))
    assert meter is None
    assert words.startswith("no meter gives power; ") and words.count("is not used") == 2


def test_base_power_must_be_steady_and_the_clock_up() -> None:
    made = Made()
    drifting = made.trace(Load(lambda t: 120.0 + 5 * t, 2.4))
    assert base_power_test(drifting).passed is False
    assert base_power_test(made.trace(Load(lambda t: IDLE_W, 2.4))).passed is True
    low = made.trace(Load(lambda t: IDLE_W, 2.4), clock=((0.0, CLOCK_HZ), (1.0, 3.45e8)))
    assert idle_clock_test(low, CLOCK_HZ).passed is False
    assert "345 of 1980 MHz" in idle_clock_test(low, CLOCK_HZ).words
    assert idle_clock_test(low, None).passed is None


def test_the_limit_that_was_not_reached_has_no_times() -> None:
    record = Made().record()
    calm = replace(record.limit, clock_samples=((0.0, CLOCK_HZ), (1.0, CLOCK_HZ)))
    assert limit_times_s(calm, 2.0, CLOCK_HZ) == (None, None)
    assert limit_times_s(calm, 2.0, None) == (None, None)
    never = replace(record.limit, clock_samples=((0.0, CLOCK_HZ), (1.0, 1e9), (2.5, 1e9)))
    assert limit_times_s(never, 2.0, CLOCK_HZ) == (1.0, None)
    facts, notes = facts_of(replace(record, limit=calm), RATINGS)
    assert facts["limit_pull_down_s"] is facts["limit_power_w"] is None
    assert "limit_power_w: the load did not pull the clock down" in notes


@pytest.mark.parametrize("resident", [20 * MIB, 30 * MIB, 45 * MIB])
def test_resident_bytes_are_where_reading_grows_slower(resident: float) -> None:
    found, why = resident_bytes(reads(resident), RATINGS.l2_bytes)
    assert found == pytest.approx(resident, rel=0.03) and why == ""


@pytest.mark.parametrize(
    ("passes", "l2_bytes", "why"),
    [
        (reads(30 * MIB), None, "does not report the size"),
        ((), 60 * MIB, "too few sizes"),
        (reads(30 * MIB)[20:], 60 * MIB, "too few sizes"),
        (reads(30 * MIB, beyond=5.9e12), 60 * MIB, "hardly longer"),
    ],
)
def test_resident_bytes_that_cannot_be_told(passes: Series, l2_bytes: int | None, why: str) -> None:
    found, words = resident_bytes(passes, l2_bytes)
    assert found is None and why in words


def test_an_edge_seen_late_does_not_count() -> None:
    edges = [(i * 0.1, i * 50.0) for i in range(4)]
    edges += [(3.09, 1500.0), *((3.1 + i * 0.1, 1550.0 + i * 50) for i in range(4))]
    assert counter_power_w(tuple(edges)) == pytest.approx(500.0)
    assert counter_power_w(tuple(edges[:4])) is None
    assert counter_power_w(()) is None


def test_expected_energy_counts_what_lies_between_the_moments() -> None:
    on = ((0.1, 0.2), (0.3, 0.4))
    assert expected_energy_j(on, (100.0, 600.0), 0.0, 0.5) == pytest.approx(50 + 100)
    assert expected_energy_j(on, (100.0, 600.0), 0.15, 0.35) == pytest.approx(20 + 50)


# A trace of an NVIDIA H200: idle, float32 products, idle, products at the power limit, idle.

TRACE = json.loads((Path(__file__).parents[1] / "data" / "h200_trace.json").read_text())


def recorded(start_s: float, end_s: float) -> Trace:
    power, counter, clock = (
        tuple((t - start_s, value) for t, value in TRACE[name] if start_s <= t <= end_s)
        for name in ("power", "counter", "clock")
    )
    return Trace(end_s - start_s, power, counter, (), clock, ("samples", "counter", "clock"))


def test_periods_and_powers_of_a_real_board() -> None:
    whole = recorded(0.0, 6.0)
    assert period_s(whole.power_samples) == pytest.approx(0.0204, abs=0.001)
    assert period_s(whole.counter_edges) == pytest.approx(0.1, abs=0.003)
    load = recorded(1.3, 2.5)
    by_samples, by_counter = mean_power_w(load, "samples"), mean_power_w(load, "counter")
    assert by_samples is not None and 640 < by_samples < 700
    assert by_counter == pytest.approx(by_samples, rel=0.01)


def test_the_meters_of_a_real_board_agree() -> None:
    tests = {test.name: test for test in steady_tests(recorded(1.3, 2.5))}
    assert tests["counter: steady load"].passed is True
    assert tests["instant: steady load"].passed is None
    assert "does not report the instant power" in tests["instant: steady load"].words
    short = replace(recorded(1.3, 2.5), counter_edges=())
    assert {t.name: t.passed for t in steady_tests(short)}["counter: steady load"] is False


def test_a_real_board_at_rest_is_steady() -> None:
    rest = recorded(5.2, 6.0)
    assert base_power_test(rest).passed is True
    assert idle_clock_test(rest, CLOCK_HZ).passed is True


def test_the_power_limit_of_a_real_board_pulls_the_clock_down_and_lets_it_go() -> None:
    pulled_s, recovered_s = limit_times_s(recorded(3.5021, 6.0), 5.0077 - 3.5021, CLOCK_HZ)
    assert pulled_s is not None and 0.05 < pulled_s < 0.8
    assert recovered_s is not None and 0 <= recovered_s < 0.3


def test_polling_without_samples_compares_the_counter_with_itself() -> None:
    made = Made(samples=None, polled={"fast": counting(0.5)})
    test = polling_test(made.record().steady)
    assert test.passed is False and test.value == pytest.approx(0.5)
