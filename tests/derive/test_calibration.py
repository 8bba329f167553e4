"""A board's facts, and the tests of its meters."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from opdb.derive.calibration import (
    BoardRecord,
    Wave,
    _wave_ratio,
    best_mean_w,
    counter_power_w,
    crossing_s,
    distrusted,
    expected_energy_j,
    facts_of,
    limit_power_w,
    mean_power_w,
    part_of,
    period_s,
    power_meter,
    resident_bytes,
    rise_of,
    square_test,
    steady_tests,
    step_test,
)
from opdb.derive.calibration import tests_of as judged
from opdb.records import MeterTest, Series, Trace
from tests.store.samples import DEVICE

MIB = 2**20
STEP_S = 0.0005
TICK_S, UPDATE_S = 0.0204, 0.1
ON_W, OFF_W, IDLE_W = 600.0, 150.0, 120.0
CLOCK_HZ = 1.98e9
SETTLE_S = 0.08
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


SOUND_SAMPLES, SOUND_COUNTER = ticking(TICK_S), counting()


@dataclass(frozen=True)
class Made:
    """A board made of meters; None: it has none."""

    samples: Sampler | None = SOUND_SAMPLES
    counter: Sampler | None = SOUND_COUNTER

    def trace(self, load: Load, *, clock: Series = ()) -> Trace:
        meters = {
            "samples": self.samples,
            "counter": self.counter,
        }
        series = {name: sampler(load) if sampler else () for name, sampler in meters.items()}
        return Trace(
            load.duration_s,
            series["samples"],
            series["counter"],
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
            steady=self.trace(steady),
            off=self.trace(Load(lambda t: OFF_W, 1.6)),
            step=self.wave(0.5, 4.0),
            squares=tuple(self.wave(period, 1.6) for period in PERIODS_S),
            idle=self.trace(Load(lambda t: IDLE_W, 2.4)),
            limit=self.trace(Load(limited_w, 2.0), clock=late),
            rates={"copy_bytes_per_s": 4e12, "matmul_float64_flops_per_s": None},
            passes=reads(30 * MIB),
        )


def limited_w(at_s: float) -> float:
    """The power of a load that settles at the limit within 0.9 s, and ends after 2 s."""
    return 500.0 if at_s < 0.9 else 690.0 if at_s < 2.0 else IDLE_W


def reads(resident: float, cached: float = 6e12, beyond: float = 4e12) -> Series:
    """Passes over buffers of which so much stays in the cache: all, then less and less."""
    found = []
    size = 4.0 * MIB
    while size < 121 * MIB:
        missed = min(1.0, max(0.0, (size / resident - 0.8) / 0.4))
        found.append((size, 2e-6 + size * ((1 - missed) / cached + missed / beyond)))
        size *= 1.08
    return tuple(found)


NAMES = (
    "samples: steady load",
    "counter: steady load",
    "samples: square wave",
    "counter: square wave",
    "samples: step",
)


def all_tests(made: Made) -> dict[str, MeterTest]:
    tests = {t.name: t for t in judged(made.record(), SETTLE_S)}
    assert tuple(tests) == NAMES, "each is told, made or not"
    return tests


def failures(made: Made) -> dict[str, MeterTest]:
    return {name: t for name, t in all_tests(made).items() if t.passed is False}


def test_a_sound_board_passes_every_test() -> None:
    tests = judged(Made().record(), SETTLE_S)
    passed = {test.name: test.passed for test in tests}
    assert passed == {**dict.fromkeys(NAMES, True), "samples: steady load": None}
    assert distrusted(tests) == {}
    [square] = [test.words for test in tests if test.name == "samples: square wave"]
    assert square.startswith(f"of {len(PERIODS_S) - 1} loads that are switched on and off")
    assert re.search(r" is farthest off at a period of (10|25|50|100|130) ms: ", square)
    assert "; in step with the driver's samples, at 20 ms, " in square
    assert power_meter(tests) == ("samples", "power comes from the driver's ring of samples")


def test_facts_of_a_sound_board() -> None:
    facts, notes = facts_of(Made().record(), DEVICE)
    assert facts == {
        "sample_period_s": pytest.approx(TICK_S),
        "counter_period_s": pytest.approx(UPDATE_S),
        "sample_lag_s": pytest.approx(TICK_S / 2, abs=0.002),
        "step_response_10_90_s": pytest.approx(1.2 * TICK_S, rel=0.4),
        "base_power_w": pytest.approx(IDLE_W),
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
        (Made(samples=ticking(TICK_S, 1.0)), "samples: step", "do not follow a load"),
        (Made(samples=ticking(TICK_S, 0.15)), "samples: step", "settle for 80 ms"),
        (Made(samples=stuck), "samples: step", "follow"),
        (Made(samples=stuck), "samples: steady load", "hardly changed"),
        (Made(samples=ticking(TICK_S, gain=1.05)), "counter: steady load", "600.0 W .*630.0 W: "),
        (Made(counter=counting(0.9)), "counter: steady load", r"540.0 W .*600.0 W: -10.0 %"),
        (Made(counter=lambda load: ()), "counter: steady load", "hardly changed in 3.7 s"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_meter_is_found_and_said(made: Made, failed: str, words: str) -> None:
    found = failures(made)
    assert failed in found
    test = found[failed]
    assert test.value is None or test.value > test.bound
    assert re.search(words, test.words), test.words
    meter = failed.partition(":")[0]
    assert {name.partition(":")[0] for name in found} == {meter}, found
    assert set(distrusted(found.values())) == {meter}


def test_of_two_meters_the_samples_are_the_measure() -> None:
    tests = judged(Made(counter=counting(0.9)).record(), SETTLE_S)
    by_name = {test.name: test for test in tests}
    assert by_name["samples: steady load"].passed is None
    assert "nothing says" in by_name["samples: steady load"].words
    assert set(distrusted(tests)) == {"counter"}
    assert power_meter(tests)[0] == "samples"


def test_no_limit_is_kept_where_the_clock_stays_up() -> None:
    clock = tuple((i * 0.01, CLOCK_HZ) for i in range(300))
    trace = Made().trace(Load(limited_w, 2.0), clock=clock)
    assert limit_power_w(trace, CLOCK_HZ) is None
    assert limit_power_w(trace, None) is None
    assert limit_power_w(trace, 1.1 * CLOCK_HZ) == pytest.approx(690, rel=0.02)


def test_an_edge_seen_late_does_not_count() -> None:
    """Of edges a second apart: at 1.5 s it was read in time, later than that it was not."""
    edges = tuple((float(n), 100.0 * n) for n in range(6))
    assert counter_power_w((*edges, (6.5, 1000.0))) != pytest.approx(100.0)
    assert counter_power_w((*edges, (6.75, 1000.0))) == pytest.approx(100.0)
    assert counter_power_w(edges[:5]) == pytest.approx(100.0)
    assert counter_power_w(edges[:4]) is None and counter_power_w(()) is None


def test_what_a_board_does_not_report_is_no_failure() -> None:
    made = Made(samples=None, counter=None)
    tests = tuple(all_tests(made).values())
    assert all(t.passed is None and t.words.startswith("not made: ") for t in tests)
    assert power_meter(tests) == (None, "no meter gives power")
    facts, notes = facts_of(made.record(), DEVICE)
    missing = {name for name, value in facts.items() if value is None}
    assert {note.partition(":")[0] for note in notes} == missing
    assert {"sample_period_s", "sample_lag_s", "base_power_w", "limit_power_w"} <= missing


def test_a_meter_without_two_levels_is_not_held_against_waves() -> None:
    record, unseen = Made().record(), Trace(1.6, (), (), (), ())
    for part in (replace(record, off=unseen), replace(record, steady=unseen)):
        test = square_test(part, "samples")
        assert (test.name, test.passed) == ("samples: square wave", None)
        assert "gave no level to compare with" in test.words
    test = square_test(replace(record, squares=()), "samples")
    assert test.passed is None and "saw too little of any wave" in test.words
    square = all_tests(Made(samples=stuck))["samples: square wave"]
    assert square.passed is None and "does not tell the load from its absence" in square.words


def test_a_load_stands_out_at_a_quarter_more_than_without_it() -> None:
    def level(watts: float) -> Trace:
        flat, rising = (tuple((float(t), watts * t**n) for t in range(5)) for n in (0, 1))
        return Trace(4.0, flat, rising, (), ("samples", "counter"))

    for off_w, stands_out in ((480.0, True), (481.0, False)):
        record = replace(Made().record(), steady=level(600.0), off=level(off_w))
        assert (rise_of(record)[0] is not None) == stands_out
        assert (square_test(record, "counter").passed is not None) == stands_out
        assert (steady_tests(record.steady, record.off)[1].passed is True) == stands_out


def test_a_load_that_samples_miss_while_it_is_on_has_no_rise() -> None:
    """Of two loads the samples show the second alone; one of two is no answer of the board."""
    samples = ((0.0, OFF_W), (0.76, OFF_W), (0.78, ON_W), (1.0, ON_W))
    step = Wave(0.5, ((0.25, 0.5), (0.75, 1.0)), Trace(1.0, samples, (), (), ()))
    lag_s, response_s = rise_of(replace(Made().record(), step=step))
    assert lag_s == pytest.approx(0.02) and response_s is None


def test_the_counter_gives_power_where_the_samples_failed() -> None:
    meter, words = power_meter(judged(Made(samples=held(0.1, 0.025)).record(), SETTLE_S))
    assert meter == "counter"
    assert "the driver's ring of samples is not used (of " in words
    both = Made(samples=held(0.1, 0.025), counter=counting(0.5)).record()
    meter, words = power_meter(judged(both, SETTLE_S))
    assert meter is None
    assert words.startswith("no meter gives power; ") and words.count("is not used") == 2


@pytest.mark.parametrize("resident", [20 * MIB, 30 * MIB, 45 * MIB])
def test_resident_bytes_are_where_reading_grows_slower(resident: float) -> None:
    found, why = resident_bytes(reads(resident), DEVICE.l2_bytes)
    assert found == pytest.approx(resident, rel=0.03) and why == ""


def passes(*sizes_rates: tuple[float, float], outlier: float = 0.0) -> Series:
    """Seven small passes of 10 ms and 10 ms a byte, the fourth longer, then those given."""
    fixed = 1 + outlier / 7  # what a line through the small ones makes of it
    small = [(3.0 * n, 1 + 3.0 * n + (outlier if n == 4 else 0.0)) for n in range(1, 8)]
    large = ((size, fixed + size * rate) for size, rate in sizes_rates)
    return tuple((size, 0.01 * amount) for size, amount in (*small, *large))


LARGE = ((170.0, 1.7), (200.0, 3.0), (230.0, 1.7))


def test_the_step_is_half_way_between_the_rates_within_the_l2_and_far_beyond_it() -> None:
    """An L2 of 100 bytes: half way between 10 and 17 ms a byte, whatever one small pass took."""
    seen = passes((100.0, 1.0), (140.0, 1.6), *LARGE, outlier=8.0)
    found, why = resident_bytes(seen, 100)
    assert found == pytest.approx(100 + 40 * 0.35 / 0.6) and why == ""
    at_once = passes((100.0, 1.6), *LARGE)
    assert resident_bytes(at_once, 100) == (None, "reading grew slower in no one place")
    assert resident_bytes(passes((100.0, 1.0), *LARGE), 105)[1] == "", "1.7 times the L2: beyond"
    few = passes((100.0, 1.0), *LARGE)[2:]
    assert resident_bytes(few, 100)[0] is not None, "five small sizes are enough"
    assert resident_bytes(few[1:], 100) == (None, "too few sizes were read")
    assert resident_bytes(passes((100.0, 1.0), (140.0, 1.7)), 100)[0] is None
    unknown = resident_bytes(seen, None)
    assert unknown == (None, "the driver does not report the size of the L2")
    alike = resident_bytes(reads(30 * MIB, beyond=5.9e12), 60 * MIB)
    assert alike == (None, "reading beyond the L2 takes hardly longer than within it")


def test_a_part_of_a_trace_has_both_its_ends_and_begins_at_its_own_times() -> None:
    series = tuple((float(t), 10.0 * t) for t in range(5))
    trace = Trace(4.0, series, series[:4], series[2:], ("samples",))
    assert part_of(trace, 1.0, 3.0) == Trace(
        2.0, series[1:4], series[1:4], series[2:4], ("samples",)
    )


def test_a_crossing_is_where_samples_first_rise_through_a_level() -> None:
    samples = ((0.0, 0.0), (1.0, 10.0), (2.0, 0.0), (4.0, 20.0))
    assert crossing_s(samples, 0.0, 5.0, 9.0) == pytest.approx(0.5)
    assert crossing_s(samples, 1.0, 10.0, 9.0) == pytest.approx(1.0)
    assert crossing_s(samples, 1.5, 5.0, 9.0) == pytest.approx(2.5)
    assert crossing_s(samples, 0.0, 5.0, 1.0) is None, "not within this second"
    assert crossing_s(samples, 1.5, 5.0, 2.5) is None
    assert crossing_s(samples, 0.0, 30.0, 9.0) is None
    assert crossing_s(samples, 0.0, 0.0, 9.0) is None


def test_a_mean_needs_five_samples_and_the_samples_come_before_the_counter() -> None:
    five = tuple((float(t), 100.0) for t in range(5))
    rising = tuple((float(t), 90.0 * t) for t in range(5))
    both = Trace(4.0, five, rising, (), ("samples", "counter"))
    assert mean_power_w(both, "samples") == 100 and best_mean_w(both) == 100
    assert best_mean_w(replace(both, power_samples=five[:4])) == pytest.approx(90)
    assert best_mean_w(replace(both, power_samples=(), counter_edges=rising[:4])) is None


def test_a_visit_settles_for_as_long_as_samples_rise() -> None:
    record = Made().record()
    _, response_s = rise_of(record)
    assert step_test(record, response_s).passed is True
    assert step_test(record, 0.99 * response_s).passed is False
    said = step_test(record, 0.08).words
    assert said.endswith(f"in {1e3 * response_s:.0f} ms; a visit lets them settle for 80 ms")


def test_a_wave_is_held_against_its_levels_over_the_time_that_a_meter_covers() -> None:
    """100 and 300 W: 220 W over the 5 s from its first moment on to its last, ends included."""
    on = ((0.0, 0.5), (1.0, 1.5), (2.0, 2.5), (3.0, 3.5), (4.0, 5.0))
    ticks = tuple((-0.25 + 0.5 * i, 220.0 if 0 < i < 11 else 9999.0) for i in range(12))
    edges = tuple(
        (t, 2 * expected_energy_j(on, (100.0, 300.0), 0.0, t)) for t in (0.0, 1.25, 2.5, 3.75, 5.0)
    )
    counter = ((-1.0, -9999.0), *edges, (6.0, 9999.0))
    late = tuple((t + 0.125, w) for t, w in ticks)

    def ratio(meter: str, ring: Series, counter: Series, lag_s: float | None = None) -> Any:
        wave = Wave(1.0, on, Trace(6.0, ring, counter, (), ()))
        return _wave_ratio(wave, meter, lag_s, (100.0, 300.0))

    assert ratio("samples", ticks, ()) == ratio("samples", late, (), 0.125) == pytest.approx(1.0)
    assert ratio("counter", (), counter) == pytest.approx(2.0)
    for ring, few in ((ticks[2:], edges[1:]), ((), ())):
        assert ratio("samples", ring, few) is ratio("counter", ring, few) is None


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
    return Trace(end_s - start_s, power, counter, clock, ("samples", "counter", "clock"))


def test_periods_and_powers_of_a_real_board() -> None:
    whole = recorded(0.0, 6.0)
    assert period_s(whole.power_samples) == pytest.approx(0.0204, abs=0.001)
    assert period_s(whole.counter_edges) == pytest.approx(0.1, abs=0.003)
    load = recorded(1.3, 2.5)
    by_samples, by_counter = mean_power_w(load, "samples"), mean_power_w(load, "counter")
    assert 640 < by_samples < 700
    assert by_counter == pytest.approx(by_samples, rel=0.01)


def test_the_meters_of_a_real_board_agree() -> None:
    off = recorded(0.0, 1.0)
    tests = {test.name: test for test in steady_tests(recorded(1.3, 2.5), off)}
    assert tests["counter: steady load"].passed is True
    short = replace(recorded(1.3, 2.5), counter_edges=())
    assert {t.name: t.passed for t in steady_tests(short, off)}["counter: steady load"] is False
