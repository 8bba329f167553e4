"""Windows cut out of a trace that was recorded on an NVIDIA H200."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from opdb.derive.statistics import slope, trapezoid_mean
from opdb.errors import InputError
from tests.meters.replay import ReplayMeter

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
IDLE = (0.2, 0.9)
FP32 = (1.4, 2.4)
LIMITED = (3.9, 4.9)


def mean_w(window: tuple[float, float]) -> float:
    return statistics.fmean(w for _, w in ReplayMeter(TRACE).window(*window).power_samples)


def test_idle_lies_below_load_and_load_below_the_limit() -> None:
    assert 110 < mean_w(IDLE) < 140
    assert mean_w(IDLE) < mean_w(FP32) < mean_w(LIMITED) < 760


def test_counter_samples_and_trapezoid_agree_on_a_steady_load() -> None:
    reading = ReplayMeter(TRACE).window(*FP32)
    mean = mean_w(FP32)
    counter, trapezoid = slope(reading.counter_edges), trapezoid_mean(reading.power_samples)
    assert counter is not None and abs(counter / mean - 1) < 0.01
    assert trapezoid is not None and abs(trapezoid / mean - 1) < 0.01


def test_the_power_limit_pulls_the_clock_down() -> None:
    free = ReplayMeter(TRACE).window(*FP32).clock_samples_hz
    held = ReplayMeter(TRACE).window(*LIMITED).clock_samples_hz
    assert min(free) == 1.98e9
    assert statistics.fmean(held) < 1.8e9


def test_lag_moves_the_window() -> None:
    late = ReplayMeter(TRACE).window(1.0, 1.5, lag_s=0.1).power_samples
    plain = ReplayMeter(TRACE).window(1.1, 1.6).power_samples
    assert [w for _, w in late] == [w for _, w in plain]


def test_a_window_outside_the_trace_has_a_reason() -> None:
    reading = ReplayMeter(TRACE).window(100.0, 101.0)
    assert not reading.power_samples
    assert reading.reason


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '{"power": 1'])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InputError, match=str(path)):
        ReplayMeter(path)
