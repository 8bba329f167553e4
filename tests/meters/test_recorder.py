"""The recorder against what a real driver answered: an H200 under a load that comes and goes."""

from __future__ import annotations

import json
import os
import statistics
from typing import Any

import pytest

from opdb.meters import nvml
from opdb.meters.nvml import POLL_PERIOD_S, PowerRecorder
from tests.meters.driver import BOOT_S, RecordedDriver

STAMP_S = 1e-4
"""How exactly moments are kept in the recording."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> RecordedDriver:
    return RecordedDriver(monkeypatch)


def recorded(driver: RecordedDriver) -> PowerRecorder:
    """A recorder that has polled the driver all through the recording."""
    made = PowerRecorder("GPU-of-the-recording")
    while driver.at_s < driver.marks["end"]:
        made.poll()
        driver.sleep(POLL_PERIOD_S)
    return made


def window(made: PowerRecorder, start_s: float, end_s: float, lag_s: float = 0.0) -> dict[str, Any]:
    return made.reply({"window": [BOOT_S + start_s, BOOT_S + end_s, lag_s]})


def at_the_limit(driver: RecordedDriver) -> tuple[float, float]:
    """A stretch in the middle of the products that the power limit holds back."""
    return driver.marks["bf16 on"] + 0.5, driver.marks["bf16 on"] + 1.4


def test_a_window_is_in_watts_joules_and_hertz(driver: RecordedDriver) -> None:
    start_s, end_s = at_the_limit(driver)
    found = window(recorded(driver), start_s, end_s)
    samples = driver.between("power_samples_mw", start_s, end_s)
    assert len(samples) >= 20
    assert [w for _, w in found["power"]] == pytest.approx([mw / 1000 for _, mw in samples])
    assert [t for t, _ in found["power"]] == pytest.approx(
        [at - start_s for at, _ in samples], abs=STAMP_S
    )
    energies_j = [mj / 1000 for _, mj in driver.between("energy_mj", start_s, end_s)]
    assert len(energies_j) >= 5
    assert [j for _, j in found["counter"]][-len(energies_j) :] == pytest.approx(energies_j)
    (first_s, first_j), (last_s, last_j) = found["counter"][0], found["counter"][-1]
    mean_w = statistics.fmean(w for _, w in found["power"])
    assert 650 < mean_w < 750, "near the limit of 700 W"
    assert (last_j - first_j) / (last_s - first_s) == pytest.approx(mean_w, rel=0.03)
    assert all(1.0e9 < hz < 1.98e9 for hz in found["clock"])
    assert 20 < found["temperature"] < 90


def test_power_is_that_of_the_window_moved_by_the_meters_lag(driver: RecordedDriver) -> None:
    made = recorded(driver)
    start_s, end_s, lag_s = driver.marks["fp32 on"], driver.marks["fp32 on"] + 0.4, 0.1
    late = window(made, start_s, end_s, lag_s)
    expected = driver.between("power_samples_mw", start_s + lag_s, end_s + lag_s)
    assert [w for _, w in late["power"]] == pytest.approx([mw / 1000 for _, mw in expected])
    assert [t for t, _ in late["power"]] == pytest.approx(
        [at - start_s - lag_s for at, _ in expected], abs=STAMP_S
    )
    at_once = window(made, start_s, end_s)
    assert late["power"][0][1] > 1.5 * at_once["power"][0][1], "the load had just begun"
    assert late["counter"] == at_once["counter"], "the counter has no lag"


def test_why_the_clock_was_held_is_told_of_the_whole_window(driver: RecordedDriver) -> None:
    made = recorded(driver)
    on_s, off_s = driver.marks["bf16 on"], driver.marks["end"]
    assert window(made, on_s, off_s)["reasons"] == ("software power cap",)
    assert window(made, off_s - 0.3, off_s)["reasons"] == (), "it is over by then"
    assert window(made, 0.1, 0.9)["reasons"] == ()


def polled(driver: RecordedDriver, until_s: float) -> PowerRecorder:
    """A recorder that polled from here until a second of the recording."""
    made = PowerRecorder("GPU-of-the-recording")
    while driver.at_s < until_s:
        made.poll()
        driver.sleep(POLL_PERIOD_S)
    return made


@pytest.mark.parametrize("lag_s", [0.0, 0.1])
def test_a_window_that_ends_now_is_waited_for_and_no_longer(
    driver: RecordedDriver, lag_s: float
) -> None:
    made = polled(driver, 3.0)
    end_s = driver.at_s
    found = window(made, end_s - 0.2, end_s, lag_s)
    assert len(found["power"]) == len(
        driver.between("power_samples_mw", end_s + lag_s - 0.2, end_s + lag_s)
    )
    assert lag_s < driver.at_s - end_s < lag_s + 0.06, "until the ring has passed its end"
    before_s = driver.at_s
    last_s = made.power[-1][0] - BOOT_S
    again = window(made, last_s - 0.2, last_s)
    assert driver.at_s == before_s, "the ring has it already"
    assert again["power"][-1][0] == pytest.approx(0.2)
    trace = made.reply({"trace": [BOOT_S + before_s - 0.2, BOOT_S + before_s]})
    assert trace["samples"][-1][0] > 0.17 and driver.at_s > before_s


def test_a_ring_that_stays_silent_is_not_waited_for_for_ever(driver: RecordedDriver) -> None:
    made = polled(driver, 0.0)
    assert window(made, 10.0, 11.0)["power"] == []
    assert driver.at_s == pytest.approx(0.3, abs=0.005)


def test_what_the_ring_held_before_the_recorder_began_is_taken(driver: RecordedDriver) -> None:
    driver.at_s = 1.0
    made = PowerRecorder("GPU-of-the-recording")
    made.poll()
    held = driver.between("power_samples_mw", 0.0, 1.0)
    assert [w for _, w in made.power] == pytest.approx([mw / 1000 for _, mw in held])
    assert [t - BOOT_S for t, _ in made.power] == pytest.approx([at for at, _ in held], abs=STAMP_S)


def test_both_ends_of_a_window_belong_to_it(driver: RecordedDriver) -> None:
    made = recorded(driver)
    first_s, last_s = made.counter[2][0], made.counter[7][0]
    found = made.reply({"window": [first_s, last_s, 0.0]})
    assert [t for t, _ in found["counter"]] == [made.counter[n][0] - first_s for n in range(2, 8)]
    clocks = [hz for t, hz, _ in made.clock if first_s <= t <= last_s]
    assert len(found["clock"]) == len(clocks) > 100
    first_s, last_s = made.power[20][0], made.power[30][0]
    found = made.reply({"window": [first_s, last_s, 0.0]})
    assert len(found["power"]) == 11
    trace = made.reply({"trace": [first_s, last_s]})
    assert [t for t, _ in trace["samples"]] == [made.power[n][0] - first_s for n in range(20, 31)]


def test_readings_are_kept_for_two_minutes(driver: RecordedDriver) -> None:
    made = PowerRecorder("GPU-of-the-recording")
    for driver.at_s in (0.0, 1.0, 120.5, 121.0):
        made.poll()
    assert [t - BOOT_S for t, _, _ in made.clock] == [1.0, 120.5, 121.0]


def test_a_ring_that_is_handed_out_whole_again_has_nothing_new(
    driver: RecordedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = PowerRecorder("GPU-of-the-recording")
    whole = driver._samples
    monkeypatch.setattr("pynvml.nvmlDeviceGetSamples", lambda of, kind, _: whole(of, kind, 0))
    read_until_s = []
    for driver.at_s in (1.0, 1.019, 1.02, 1.06):  # it is read every 20 ms
        made.poll()
        read_until_s.append(made.power[-1][0] - BOOT_S)
        held = driver.between("power_samples_mw", 0.0, read_until_s[-1] + STAMP_S)
        assert [w for _, w in made.power] == pytest.approx([mw / 1000 for _, mw in held])
    assert read_until_s[0] == read_until_s[1] < read_until_s[3]


def test_each_line_is_answered_at_once(
    driver: RecordedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = polled(driver, 3.0)
    asked = {"window": [BOOT_S + 2.0, BOOT_S + 2.5, 0.0]}
    polls = len(made.clock)
    told: list[tuple[Any, bool]] = []
    say = lambda text, *, flush=False: told.append((json.loads(text), flush))  # noqa: E731
    monkeypatch.setattr(nvml, "print", say, raising=False)
    read, write = os.pipe()
    with os.fdopen(read) as questions, os.fdopen(write, "w") as parent:
        monkeypatch.setattr("sys.stdin", questions)
        parent.write(json.dumps(asked) + "\n")
        parent.close()
        made.serve()
    answer = json.loads(json.dumps(made.reply(asked)))
    assert told == [({"ready": True}, True), (answer, True)]
    assert len(made.clock) == polls + 2, "before each question, and before the end"


def test_a_trace_has_each_series_in_its_unit(driver: RecordedDriver) -> None:
    made = recorded(driver)
    start_s, end_s = at_the_limit(driver)
    found = made.reply({"trace": [BOOT_S + start_s, BOOT_S + end_s]})
    answered = {mj for _, mj in driver.between("energy_mj", start_s - 0.1, end_s)}
    seen_j = [j for _, j in found["counter"]]
    assert len(seen_j) >= 5 and {round(j * 1000) for j in seen_j} <= answered
    assert seen_j[-1] - seen_j[0] == pytest.approx(700 * (end_s - start_s), rel=0.2)
    assert {hz for _, hz in found["clock"]} <= {
        mhz * 1e6 for _, mhz in driver.recorded["clock_mhz"]
    }
    assert found["answering"] == ["samples", "counter", "clock"]
