"""Traces of the NVML recorder, on a stand-in for pynvml whose board draws 300 W for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from opdb.errors import CannotMeasureError
from opdb.meters.nvml import NvmlMeter
from tests.paths import python_path

UUID = "GPU-of-a-test"
STAND_IN = '''
"""As much of pynvml as a trace needs: 300 W, a tick of 20 ms, a counter and an instant of 50 ms."""
import time
from types import SimpleNamespace
class NVMLError(Exception): pass
NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = NVML_SUCCESS = 0
NVML_TOTAL_POWER_SAMPLES, NVML_GPU_UTILIZATION_SAMPLES = 0, 1
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetTotalEnergyConsumption(handle): return int(time.time() / 0.05) * 15_000
def nvmlDeviceGetClockInfo(handle, kind): return 1500
def nvmlDeviceGetTemperature(handle, sensor): return 45
nvmlClocksEventReasonSwPowerCap = 4
def nvmlDeviceGetCurrentClocksEventReasons(handle): return 4
def nvmlDeviceGetFieldValues(handle, fields):
    milliwatts = 300_000 + int(time.time() / 0.05) % 2
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=milliwatts))]
def nvmlDeviceGetSamples(handle, kind, seen_us):
    if kind != NVML_TOTAL_POWER_SAMPLES:
        now = int(time.time() / 0.02)
        return 1, [
            SimpleNamespace(timeStamp=i * 20_000, sampleValue=SimpleNamespace(uiVal=40))
            for i in range(now - 50, now + 1) if i * 20_000 > seen_us
        ]
    now = int(time.time() / 0.02)
    return 1, [
        SimpleNamespace(timeStamp=i * 20_000, sampleValue=SimpleNamespace(uiVal=300_000))
        for i in range(now - 50, now + 1) if i * 20_000 > seen_us
    ]
'''


@pytest.fixture
def meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlMeter]:
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    made = NvmlMeter(UUID)
    yield made
    made.close()


def test_a_trace_has_every_series_with_its_moments(meter: NvmlMeter) -> None:
    meter.watch(instant=True)
    start_s = time.monotonic()
    time.sleep(0.4)
    trace = meter.trace(start_s, start_s + 0.4)
    assert set(trace.answering) == {"samples", "counter", "instant", "clock"}
    assert trace.duration_s == pytest.approx(0.4)
    for series in (
        trace.power_samples,
        trace.counter_edges,
        trace.instant_samples,
        trace.clock_samples,
    ):
        assert len(series) >= 5
        assert all(0 <= a[0] < b[0] <= 0.4 for a, b in pairwise(series))
    assert {w for _, w in trace.power_samples} == {300.0}
    assert trace.counter_edges[0][1] == 0
    assert {round(b[1] - a[1], 6) for a, b in pairwise(trace.counter_edges)} <= {15.0, 30.0}
    assert {round(w) for _, w in trace.instant_samples} == {300}
    assert {hz for _, hz in trace.clock_samples} == {1.5e9}


def test_a_counter_that_is_not_to_be_read_is_not(meter: NvmlMeter) -> None:
    meter.watch("none")
    start_s = time.monotonic()
    time.sleep(0.3)
    silent = meter.trace(start_s, start_s + 0.3)
    assert silent.counter_edges == () and len(silent.power_samples) >= 5
    assert silent.instant_samples == (), "nor what nobody asked for"
    meter.watch("fast")
    start_s = time.monotonic()
    time.sleep(0.3)
    meter.watch("usual")
    fast = meter.trace(start_s, start_s + 0.3)
    assert len(fast.counter_edges) >= 4
    assert len(fast.clock_samples) > 2 * len(silent.clock_samples)
    reading = meter.window(start_s, start_s + 0.3)
    assert reading.counter_edges == fast.counter_edges
    assert reading.clock_samples_hz == tuple(hz for _, hz in fast.clock_samples)
    assert reading.utilization == pytest.approx(0.4)
    assert reading.temperature_c == 45
    assert reading.throttle_reasons == ("software power cap",)


def test_a_recorder_that_has_ended_is_one_error(meter: NvmlMeter) -> None:
    meter._process.kill()
    with pytest.raises(CannotMeasureError, match=f"the NVML recorder of {UUID} ended"):
        meter.trace(0.0, 0.1)
