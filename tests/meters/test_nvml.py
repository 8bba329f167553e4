"""The NVML meter where there is no NVIDIA driver, and on a stand-in for pynvml."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from opdb.errors import CannotMeasureError
from opdb.meters import Reading, nvml
from opdb.meters.nvml import (
    BoardState,
    NvmlMeter,
    PowerRecorder,
    board_state,
    board_states,
    driver_version,
    foreign_processes,
    gpu_names,
    try_meters,
)
from opdb.records import Trace
from tests.meters.driver import RecordedDriver
from tests.paths import python_path

UUID = "GPU-of-a-test"
STAND_IN = '''
"""As much of pynvml as the recorder needs to start: a board that reports nothing."""
class NVMLError(Exception): pass
NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
NVML_TOTAL_POWER_SAMPLES, NVML_FI_DEV_POWER_INSTANT = 0, 186
def __getattr__(name):
    if name.startswith("nvmlClocksEventReason"): return 4 if name.endswith("PowerCap") else 0
    raise AttributeError(name)
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
        board_state(UUID)
    assert gpu_names() == []
    whatever_asks: list[Callable[[], object]] = [
        driver_version, board_states, lambda: try_meters(UUID, 0.1), lambda: PowerRecorder(UUID)
    ]  # fmt: skip
    for asked in whatever_asks:
        with pytest.raises(CannotMeasureError, match="NVML cannot be used"):
            asked()
    with pytest.raises(CannotMeasureError, match=rf"NVML on {UUID}: NVML cannot be used"):
        NvmlMeter(UUID)


def not_supported(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def mig(monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Let NVML know one board, in this MIG mode, with another one from the next reset on."""
    for name in ("EnforcedPowerLimit", "PowerManagementDefaultLimit", "MaxClockInfo"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", not_supported)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: f"the handle of {uuid}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda _: [mode, 1 - mode])
    names = {f"the handle of {UUID}": "a board", "MIG": "an instance"}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", names.get)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "1.0")


def test_a_board_split_by_mig_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mig(monkeypatch, 1)
    with pytest.raises(CannotMeasureError, match=f"the board of {UUID} is split by MIG") as caught:
        board_state(UUID)
    assert caught.value.exit_status == 3
    mig(monkeypatch, 0)
    with pytest.raises(CannotMeasureError, match="MIG"):
        board_state("MIG-an-instance")


def test_what_a_board_does_not_report_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mig(monkeypatch, 0)
    info = board_state(UUID)
    assert (info.uuid, info.name, info.mig) == (UUID, "a board", False)
    assert (info.power_limit_w, info.default_power_limit_w, info.max_clock_hz) == (None,) * 3
    assert board_states() == [], "NVML does not say how many boards there are"
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", not_supported)
    assert board_state(UUID) == replace(info, mig=None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    by_index = {0: f"the handle of {UUID}"}.__getitem__
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", by_index)
    assert board_states() == [BoardState(None, name="a board")]


ANSWERS = {
    "nvmlDeviceGetCount": 2,
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetEnforcedPowerLimit": 650_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000,
}


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML know two boards, of which it cannot reach the second."""
    mig(monkeypatch, 0)
    for function, answer in ANSWERS.items():
        monkeypatch.setattr(pynvml, function, lambda *_, answer=answer: answer)
    bits = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwSlowdown
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda _: bits)

    def by_index(index: int) -> str:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return f"the handle of {UUID}"

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", by_index)


def test_what_a_board_reports_is_in_watts_hertz_and_shares(answering: None) -> None:
    info = board_state(UUID)
    assert (info.power_limit_w, info.default_power_limit_w) == pytest.approx((650.0, 700.0))
    assert info.max_clock_hz == pytest.approx(1.98e9)
    state, lost = board_states()
    assert lost == BoardState(None)
    assert (state.uuid, state.name) == (UUID, "a board")
    assert state.mig is False
    assert (state.power_limit_w, state.default_power_limit_w) == pytest.approx((650.0, 700.0))
    assert state.throttle_reasons == ("software power cap", "hardware slowdown")
    assert driver_version() == "1.0"


def test_meters_are_tried_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = RecordedDriver(monkeypatch)
    driver.at_s = 1.0
    samples, ticks = try_meters(UUID, 1.0)
    assert driver.at_s == pytest.approx(2.0, abs=0.005)
    assert samples == len(driver.between("power_samples_mw", 1.0, driver.at_s)) > 40
    assert ticks == len(driver.between("energy_mj", 1.0, driver.at_s)) > 5
    for name in ("nvmlDeviceGetSamples", "nvmlDeviceGetTotalEnergyConsumption"):
        monkeypatch.setattr(pynvml, name, lost)
    assert try_meters(UUID, 0.1) == (0, 0)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlMeter:
    """A recorder of its own process, on the stand-in."""
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    return NvmlMeter(UUID)


def test_windows_and_traces_hold_what_the_recorder_answers(
    recorder: NvmlMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    power, counter = [[1.0, 300.0], [1.1, 310.0]], [[1.0, 50.0], [1.2, 110.0]]
    same = {"counter": counter, "temperature": 41.0, "reasons": ["power limit"]}
    answers = iter((
        {**same, "power": power, "clock": [1.98e9]},
        {**same, "power": [], "clock": []},
        {"counter": counter, "samples": power, "clock": [[0.1, 1.98e9]], "answering": ["clock"]},
    ))  # fmt: skip

    def ask(request: dict[str, Any]) -> Any:
        asked.append(request)
        return next(answers)

    monkeypatch.setattr(recorder, "_ask", ask)
    watts, edges = ((1.0, 300.0), (1.1, 310.0)), ((1.0, 0.0), (1.2, 60.0))
    assert recorder.window(1.0, 1.2, lag_s=0.02) == Reading(
        watts, edges, (1.98e9,), 41.0, ("power limit",)
    )
    nothing = "the driver gave no power sample in the window"
    assert recorder.window(2.0, 2.2) == Reading((), edges, (), 41.0, ("power limit",), nothing)
    assert recorder.trace(1.0, 1.5) == Trace(0.5, watts, edges, ((0.1, 1.98e9),), ("clock",))
    assert asked == [
        {"window": [1.0, 1.2, 0.02]}, {"window": [2.0, 2.2, 0.0]}, {"trace": [1.0, 1.5]}
    ]  # fmt: skip


def test_a_board_that_reports_nothing_has_a_reason(recorder: NvmlMeter) -> None:
    assert recorder.trace(0.0, 0.1) == Trace(0.1, (), (), (), ())
    reading = recorder.window(0.0, 0.1)
    recorder.close()
    assert reading == Reading(reason="the driver gave no power sample in the window")
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
    with pytest.raises(CannotMeasureError, match=f"the NVML recorder of {UUID} ended"):
        recorder.trace(0.0, 0.1)
    recorder.close()


def test_why_the_clock_was_held_back_is_told_in_words() -> None:
    told = {bits: nvml.throttle_reasons(bits) for bits in (0x4, 0x8, 0x20, 0x40, 0x80, 0x2)}
    assert told == {
        0x4: ("software power cap",),
        0x8: ("hardware slowdown",),
        0x20: ("software thermal slowdown",),
        0x40: ("hardware thermal slowdown",),
        0x80: ("hardware power brake",),
        0x2: ("application clocks",),
    }
    assert nvml.throttle_reasons(0x1) == (), "idle holds nothing back"
    assert nvml.throttle_reasons(0x44) == ("software power cap", "hardware thermal slowdown")


def test_foreign_processes_are_those_of_others_on_the_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = SimpleNamespace(name=lambda: "python3")
    on_boards = {UUID: {os.getpid(): named, 4711: named}, "GPU-another": {4712: named}}
    monkeypatch.setattr(
        "nvitop.Device", lambda *, uuid: SimpleNamespace(processes=lambda: on_boards[uuid])
    )
    assert foreign_processes(UUID) == ["4711 (python3)"]


LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


def lost(*_: object, **__: object) -> None:
    raise LOST


def test_a_gpu_that_fell_off_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    mig(monkeypatch, 0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lost)
    said = f"NVML does not answer for {UUID} .*GPU is lost.* See nvidia-smi"
    with pytest.raises(CannotMeasureError, match=said):
        board_state(UUID)
    monkeypatch.setattr("nvitop.Device", lost)
    with pytest.raises(CannotMeasureError, match=said):
        foreign_processes(UUID)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lost)
    assert gpu_names() == [], "predictions go on"


HANGS = "\ndef nvmlDeviceGetTotalEnergyConsumption(handle): import time; time.sleep(600)\n"


def test_a_recorder_that_hangs_in_the_driver_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers that it is ready, and then nothing."""
    (tmp_path / "pynvml.py").write_text(STAND_IN + HANGS)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # or what is not flushed comes, too
    made = NvmlMeter(UUID)
    monkeypatch.setattr(nvml, "ANSWERED_WITHIN_S", 0.3)
    with pytest.raises(CannotMeasureError, match=f"recorder of {UUID} gave no answer for 0 s"):
        made.window(0.0, 0.1)
    made.close()
    assert made._process.poll() == -signal.SIGKILL


def test_a_recorder_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(STAND_IN + HANGS)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    made = NvmlMeter(UUID)
    monkeypatch.setattr(nvml, "CLOSED_WITHIN_S", 0.1)
    made.close()
    assert made._process.wait(timeout=10) == -signal.SIGKILL
