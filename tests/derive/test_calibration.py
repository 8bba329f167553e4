"""A board's facts, and the tests of its meters."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from opdb.bench.run import ANCHORS
from opdb.derive.calibration import (
    LEAST_ANCHOR,
    NEAR_A_PEAK,
    BoardRecord,
    Ratings,
    Rise,
    Wave,
    _wave_ratio,
    base_power_test,
    best_mean_w,
    bounds_of,
    counter_power_w,
    crossing_s,
    distrusted,
    expected_energy_j,
    facts_of,
    highest,
    idle_clock_test,
    limit_times_s,
    mean_power_w,
    part_of,
    period_s,
    polling_test,
    power_meter,
    resident_bytes,
    rise_of,
    square_test,
    steady_tests,
    step_test,
)
from opdb.derive.calibration import tests_of as judged
from opdb.kinds import KINDS
from opdb.records import Device, MeterTest, Series, Trace
from tests.store import samples


def test_the_anchors_are_those_of_a_bench() -> None:
    """Derived from visits without the registry, their work is written down."""
    by_key = {each.key[:12]: each for each in ANCHORS}
    assert set(by_key) >= {LEAST_ANCHOR, *(key for key, _, _ in NEAR_A_PEAK.values())}
    for fact, (key, work, _) in NEAR_A_PEAK.items():
        anchor = by_key[key]
        kind = KINDS[anchor.kind]
        count = kind.bytes_moved if fact == "copy_bytes_per_s" else kind.flops
        assert work == count(anchor)


def test_nothing_seen_leaves_what_the_device_allows() -> None:
    device = Device("d", "D", "cuda", 400.0, None, 1000, None)
    assert bounds_of(device, [], []) == {
        "limit_power_w": (200.0, 420.0),
        "base_power_w": (0.0, 500.0),
        "l2_resident_bytes": (200.0, 2000.0),
    }
    unknown = replace(device, power_limit_w=None, l2_bytes=None)
    assert set(bounds_of(unknown, [], []).values()) == {(0.0, math.inf)}


def test_a_product_in_tf32_says_nothing_of_float32() -> None:
    key, work, _ = NEAR_A_PEAK["matmul_float32_flops_per_s"]
    stretch = replace(samples.STRETCH, calls_per_replay=2, replay_times_s=(0.2, 0.2, 0.2))
    visit = samples.visit(stretch=stretch, setting='{"tf32_matmul":false}')
    visit = replace(visit, configuration=key)
    found = bounds_of(samples.DEVICE, [visit], [])["matmul_float32_flops_per_s"]
    assert found == pytest.approx((0.75 * work / 0.1, 2 * work / 0.1))
    in_tf32 = replace(visit, setting='{"tf32_matmul":true}')
    assert "matmul_float32_flops_per_s" not in bounds_of(samples.DEVICE, [in_tf32], [])


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
            limit=self.trace(Load(limited_w, 3.0), clock=late),
            limit_end_s=2.0,
            rates={"copy_bytes_per_s": 4e12, "matmul_float64_flops_per_s": None},
            passes=reads(30 * MIB),
        )


def constant(power_w: float) -> Callable[[float], float]:
    return lambda at_s: power_w


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
    "instant: steady load",
    "counter: polling",
    "samples: square wave",
    "counter: square wave",
    "instant: square wave",
    "samples: step",
    "board: base power",
    "board: clock at rest",
)


def all_tests(made: Made) -> dict[str, MeterTest]:
    tests = {t.name: t for t in judged(made.record(), RATINGS)}
    assert tuple(tests) == NAMES, "each is told, made or not"
    return tests


def failures(made: Made) -> dict[str, MeterTest]:
    return {name: t for name, t in all_tests(made).items() if t.passed is False}


def test_a_sound_board_passes_every_test() -> None:
    tests = judged(Made().record(), RATINGS)
    assert {test.name: test.passed for test in tests} == dict.fromkeys(NAMES, True)
    assert distrusted(tests) == {}
    [square] = [test.words for test in tests if test.name == "samples: square wave"]
    assert square.startswith(f"of {len(PERIODS_S) - 1} loads that are switched on and off")
    assert re.search(r" is farthest off at a period of (10|25|50|100|130) ms: ", square)
    assert "; in step with the driver's samples, at 20 ms, " in square
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
        (Made(instant=ticking(UPDATE_S, gain=1.1)), "instant: steady load", r"600.0 W: \+10.0 %"),
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
    assert test.value is None or test.value > test.bound
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


def test_without_waves_or_values_there_is_nothing_to_tell() -> None:
    test = square_test(replace(Made().record(), squares=()), "samples")
    assert test.passed is None and test.words.startswith("not made: ")
    assert "saw too little of any wave" in test.words
    assert highest(()) is None and highest(((0.0, 3.0), (1.0, 5.0), (2.0, 4.0))) == 5.0


def test_a_counter_that_is_silent_when_left_alone_is_not_compared() -> None:
    record = Made().record()
    silent = replace(record.steady["none"], counter_edges=())
    test = polling_test({**record.steady, "none": silent})
    assert (test.name, test.passed) == ("counter: polling", None)
    assert test.words == "not made: the energy counter gave too few edges when it was left alone"


def test_an_edge_seen_half_a_period_late_counts() -> None:
    """Of edges a second apart: at 1.5 s it was read in time, later than that it was not."""
    edges = tuple((float(n), 100.0 * n) for n in range(6))
    assert counter_power_w((*edges, (6.5, 1000.0))) != pytest.approx(100.0)
    assert counter_power_w((*edges, (6.75, 1000.0))) == pytest.approx(100.0)


def test_a_clock_is_back_when_it_is_held_no_more() -> None:
    record = Made().record()
    clocks = ((0.0, 1.98e9), (1.0, 1.5e9), (2.1, 1.98e9), (2.3, 1.5e9), (2.5, 1.98e9))
    held = replace(record, limit=replace(record.limit, clock_samples=clocks))
    facts, _ = facts_of(held, RATINGS)
    assert (facts["limit_pull_down_s"], facts["limit_recover_s"]) == pytest.approx((1.0, 0.5))
    at_the_end = ((0.0, 1.98e9), (2.0, 1.5e9), (2.25, 1.98e9))
    held = replace(record, limit=replace(record.limit, clock_samples=at_the_end))
    facts, _ = facts_of(held, RATINGS)
    assert (facts["limit_pull_down_s"], facts["limit_recover_s"]) == (2.0, 0.25)


def test_what_a_board_does_not_report_is_no_failure() -> None:
    made = Made(samples=None, counter=None, instant=None)
    tests = tuple(all_tests(made).values())
    assert {test.passed for test in tests} == {None, True}
    assert [test.name for test in tests if test.passed] == ["board: clock at rest"]
    assert all(test.words.startswith("not made: ") for test in tests if test.passed is None)
    assert power_meter(tests) == (None, "no meter gives power")
    facts, notes = facts_of(made.record(), replace(RATINGS, max_clock_hz=None))
    missing = {name for name, value in facts.items() if value is None}
    assert {note.partition(":")[0] for note in notes} == missing
    assert {"sample_period_s", "base_power_w", "limit_power_w"} <= missing
    assert facts["limit_pull_down_s"] == pytest.approx(0.3), "against the highest clock seen"


def test_a_meter_that_does_not_follow_a_load_is_not_held_against_waves() -> None:
    made = Made(samples=stuck)
    square = all_tests(made)["samples: square wave"]
    assert square.passed is None and "does not tell the load from its absence" in square.words
    record = made.record()
    unseen = Trace(1.6, (), (), (), (), ())
    for part in (replace(record, off=unseen), replace(record, steady={"usual": unseen})):
        test = square_test(part, "samples")
        assert (test.name, test.passed) == ("samples: square wave", None)
        assert "gave no level to compare with" in test.words


def test_a_load_stands_out_at_a_quarter_more_than_without_it() -> None:
    made = Made()
    record = made.record()
    for off_w, stands_out in ((400.0, True), (500.0, False)):
        rise = rise_of(replace(record, off=made.trace(Load(constant(off_w), 1.6))))
        assert (rise.lag_s is not None) == stands_out


def test_a_load_that_samples_miss_while_it_is_on_has_no_rise() -> None:
    """Of two loads the samples show the second alone; one of two is no answer of the board."""
    record = Made().record()
    samples = ((0.0, OFF_W), (0.76, OFF_W), (0.78, ON_W), (1.0, ON_W))
    step = Wave(0.5, ((0.25, 0.5), (0.75, 1.0)), Trace(1.0, samples, (), (), (), ()))
    rise = rise_of(replace(record, step=step))
    assert rise.lag_s == pytest.approx(0.02) and rise.response_s is None


def test_a_load_that_changes_between_traces_is_no_fault_of_the_counter() -> None:
    made = Made()
    steady = {how: made.trace(Load(constant(w), 3.7))
              for how, w in (("none", 600.0), ("usual", 550.0), ("fast", 500.0))}  # fmt: skip
    assert polling_test(steady).value == pytest.approx(0, abs=1e-3)


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
    unknown = idle_clock_test(low, None)
    assert (unknown.name, unknown.passed) == ("board: clock at rest", None)


def test_the_limit_that_was_not_reached_has_no_times() -> None:
    record = Made().record()
    calm = replace(record.limit, clock_samples=((0.0, CLOCK_HZ), (1.0, CLOCK_HZ)))
    assert limit_times_s(calm, 2.0, CLOCK_HZ) == (None, None)
    assert limit_times_s(calm, 2.0, None) == (None, None)
    least = replace(record.limit, clock_samples=((0.0, 2e9), (1.0, 1.97e9)))
    assert limit_times_s(least, 2.0, 2e9) == (None, None), "98.5 % of the highest"
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
        (((1.0, 9.0), (2.0, 9.0), (3.0, 9.0), (4.0, 9.0), (5.0, 9.0), (34.0, 77.0)), 20, "hardly"),
    ],
)
def test_resident_bytes_that_cannot_be_told(passes: Series, l2_bytes: int | None, why: str) -> None:
    found, words = resident_bytes(passes, l2_bytes)
    assert found is None and why in words


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


def test_a_part_of_a_trace_has_both_its_ends_and_begins_at_its_own_times() -> None:
    series = tuple((float(t), 10.0 * t) for t in range(5))
    trace = Trace(4.0, series, series[:4], series[1:], series[2:], ("samples",))
    assert part_of(trace, 1.0, 3.0) == Trace(
        2.0, series[1:4], series[1:4], series[1:4], series[2:4], ("samples",)
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
    both = Trace(4.0, five, rising, (), (), ("samples", "counter"))
    assert mean_power_w(both, "samples") == 100 and best_mean_w(both) == 100
    assert best_mean_w(replace(both, power_samples=five[:4])) == pytest.approx(90)
    assert best_mean_w(replace(both, power_samples=(), counter_edges=rising[:4])) is None


def test_bounds_are_within_what_passes() -> None:
    made = Made()
    record = made.record()
    response_s = rise_of(record).response_s
    assert step_test(record, response_s).passed is True
    assert step_test(record, 0.99 * response_s).passed is False
    few = replace(record.step.trace, power_samples=record.step.trace.power_samples[:10])
    ten = replace(record, step=replace(record.step, trace=few))
    assert step_test(ten, 0.08).passed is False, "ten samples, and no rise"
    at_rest = replace(record.idle, clock_samples=((0.0, 2e9), (1.0, 1.97e9)))
    assert idle_clock_test(at_rest, 2e9).passed is True, "98.5 % of the highest"
    assert idle_clock_test(at_rest, 2.001e9).passed is False
    assert step_test(record, 2.0).words.endswith("settle for 2000 ms")
    said = step_test(record, 0.08).words
    assert said.endswith(f"in {1e3 * response_s:.0f} ms; a visit lets them settle for 80 ms")
    words = base_power_test(record.idle).words
    assert words.endswith("draws 120.0 W and, 1.2 s later, 120.0 W: +0.0 %")
    stepped = made.trace(Load(lambda t: 100.0 if t < 1.2 else 101.9, 2.4))
    assert base_power_test(stepped).passed is True
    assert base_power_test(stepped).words.startswith(
        "with nothing running the board draws 100.0 W and, 1.2 s later, 101.9 W: +1.9 %"
    )
    stepped = made.trace(Load(lambda t: 100.0 if t < 1.2 else 97.9, 2.4))
    test = base_power_test(stepped)
    assert test.passed is False and test.value == pytest.approx(0.021, rel=0.1)


def test_seconds_are_told_in_milliseconds() -> None:
    made = Made()
    record = made.record()
    every_2_s = tuple((2.0 * i, ON_W) for i in range(6))
    steady = {"usual": replace(record.steady["usual"], power_samples=every_2_s)}
    waves = made.wave(2.0, 12.0), made.wave(1.5, 12.0)
    words = square_test(replace(record, steady=steady, squares=waves), "samples").words
    assert "farthest off at a period of 1500 ms:" in words
    assert "; in step with the driver's samples, at 2000 ms," in words
    late = replace(record, step=Made(samples=ticking(TICK_S, 1.5)).wave(8.0, 8.0))
    response_s = rise_of(late).response_s
    assert response_s == pytest.approx(1.2, rel=0.01)
    assert f" in {1e3 * response_s:.0f} ms; a visit" in step_test(late, 0.08).words


def test_a_wave_is_held_against_its_levels_over_the_time_that_a_meter_covers() -> None:
    """100 and 300 W: 220 W over the 5 s from its first moment on to its last, ends included."""
    on = ((0.0, 0.5), (1.0, 1.5), (2.0, 2.5), (3.0, 3.5), (4.0, 5.0))
    ticks = tuple((-0.25 + 0.5 * i, 220.0 if 0 < i < 11 else 9999.0) for i in range(12))
    looks = ((-0.5, 9999.0), *((0.5 * i, 110.0) for i in range(9)), (5.0, 110.0), (5.5, 9999.0))
    edges = tuple(
        (t, 2 * expected_energy_j(on, (100.0, 300.0), 0.0, t)) for t in (0.0, 1.25, 2.5, 3.75, 5.0)
    )
    counter = ((-1.0, -9999.0), *edges, (6.0, 9999.0))
    wave = Wave(1.0, on, Trace(6.0, ticks, counter, looks, (), ()))
    late = replace(
        wave, trace=replace(wave.trace, power_samples=tuple((t + 0.125, w) for t, w in ticks))
    )

    def ratio(of: Wave, meter: str, lag_s: float | None = None) -> float | None:
        return _wave_ratio(of, meter, Rise(lag_s, None), (100.0, 300.0))

    assert ratio(wave, "samples") == ratio(late, "samples", 0.125) == pytest.approx(1.0)
    assert ratio(wave, "instant") == pytest.approx(0.5)
    assert ratio(wave, "counter") == pytest.approx(2.0)
    few: dict[str, dict[str, Any]] = {
        "samples": {"power_samples": ticks[2:]},
        "instant": {"instant_samples": looks[2:]},
        "counter": {"counter_edges": edges[1:]},
    }
    for meter, series in {**few, "samples of nothing": {}}.items():
        seen = replace(Trace(6.0, (), (), (), (), ()), **series)
        assert ratio(replace(wave, trace=seen), meter.split()[0]) is None


def test_a_half_that_no_meter_saw_makes_no_test_of_base_power() -> None:
    idle = Made(counter=None).trace(Load(lambda t: IDLE_W, 2.4))
    for seen in (idle.power_samples[:50], idle.power_samples[70:]):
        assert base_power_test(replace(idle, power_samples=seen)).passed is None


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
    assert 640 < by_samples < 700
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
    assert 0.05 < pulled_s < 0.8
    assert 0 <= recovered_s < 0.3


def test_polling_without_samples_compares_the_counter_with_itself() -> None:
    made = Made(samples=None, polled={"fast": counting(0.5)})
    test = polling_test(made.record().steady)
    assert test.passed is False and test.value == pytest.approx(0.5)
