"""The NVML meter where there is no NVIDIA driver, and on a stand-in for pynvml."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from opdb.errors import CannotMeasureError
from opdb.meters.nvml import NvmlMeter, binding, board_info, gpu_names
from opdb.meters.nvml.recorder import Recorder
from opdb.units import MICRO
from tests.paths import python_path

UUID = "GPU-of-a-test"
STAND_IN = '''
"""As much of pynvml as the recorder needs to start: a board that reports nothing."""
class NVMLError(Exception): pass
NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
NVML_TOTAL_POWER_SAMPLES, NVML_GPU_UTILIZATION_SAMPLES = 0, 1
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetTotalEnergyConsumption(handle): raise NVMLError("not supported")
'''


def has_driver() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


no_driver = pytest.mark.skipif(has_driver(), reason="tells what is said without a driver")


@no_driver
def test_without_the_library_the_message_says_what_to_install() -> None:
    with pytest.raises(CannotMeasureError, match=r"NVML cannot be used .*libnvidia-ml\.so\.1"):
        board_info(UUID)
    assert gpu_names() == []


@no_driver
def test_the_recorder_passes_the_message_on() -> None:
    with pytest.raises(CannotMeasureError, match=rf"NVML on {UUID}: NVML cannot be used"):
        NvmlMeter(UUID)


def mig(monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Let NVML know one board, in this MIG mode."""

    def not_supported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("EnforcedPowerLimit", "PowerManagementDefaultLimit", "MaxClockInfo"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", not_supported)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda _: [mode, mode])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: "a board")
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "1.0")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: 13010)


def test_a_board_split_by_mig_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mig(monkeypatch, 1)
    with pytest.raises(CannotMeasureError, match=f"the board of {UUID} is split by MIG") as caught:
        board_info(UUID)
    assert caught.value.exit_status == 3
    mig(monkeypatch, 0)
    with pytest.raises(CannotMeasureError, match="MIG"):
        board_info("MIG-an-instance")


def test_what_a_board_does_not_report_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mig(monkeypatch, 0)
    info = board_info(UUID)
    assert (info.uuid, info.name, info.driver) == (UUID, "a board", "1.0")
    assert (info.power_limit_w, info.default_power_limit_w, info.max_clock_hz) == (None,) * 3


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlMeter:
    """A recorder of its own process, on the stand-in."""
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    return NvmlMeter(UUID)


def test_a_board_that_reports_nothing_has_a_reason(recorder: NvmlMeter) -> None:
    reading = recorder.window(0.0, 0.1)
    recorder.close()
    assert (reading.power_samples, reading.counter_edges) == ((), ())
    assert reading.utilization is None
    assert reading.reason == "the driver gave no power sample in the window"
    assert recorder._process.returncode == 0


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_recorder_that_ends_is_one_error_that_names_the_board(
    recorder: NvmlMeter, sent: signal.Signals
) -> None:
    os.kill(recorder._process.pid, sent)
    recorder._process.wait(timeout=10)
    for _ in range(2):
        with pytest.raises(CannotMeasureError, match=f"the NVML recorder of {UUID} ended"):
            recorder.window(0.0, 0.1)
    recorder.close()


def test_utilization_counts_each_sample_by_its_share_of_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall_us = int(time.time() / MICRO)
    percents = {wall_us - 600_000: 0, wall_us - 400_000: 20, wall_us - 200_000: 90, wall_us: 100}

    def samples(_: object, kind: int, seen_us: int) -> tuple[int, list[SimpleNamespace]]:
        if kind != pynvml.NVML_GPU_UTILIZATION_SAMPLES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1, [
            SimpleNamespace(timeStamp=t, sampleValue=SimpleNamespace(uiVal=percent))
            for t, percent in percents.items()
            if t > seen_us
        ]

    mig(monkeypatch, 0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetSamples", samples)
    now_s = time.monotonic()
    made = Recorder(UUID)
    for _ in range(2):
        # 0.05 s of the second sample, 0.2 s of the third, 0.05 s of the fourth
        found = made.utilization_between(now_s - 0.45, now_s - 0.15)
        assert found == pytest.approx((20 * 0.05 + 90 * 0.2 + 100 * 0.05) / 30, abs=0.01)
    assert made.utilization_between(now_s + 1.0, now_s + 1.2) is None, "no sample yet"
    assert made.utilization_between(now_s - 1.0, now_s - 0.7) is None, "before the first"


def test_why_the_clock_was_held_back_is_told_by_old_and_new_bindings() -> None:
    bits = [binding._reason_bit(name) for name in binding._REASONS]
    assert all(bits) and len(set(bits)) == len(bits)
    assert binding._reason_bit("NoSuchReason") == 0
