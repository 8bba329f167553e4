"""The recorder against what a real driver answered: an H200 under a load that comes and goes."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

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
