"""A real driver's recorded answers, played back to whatever asks NVML for them.

`benchmarks/nvml_answers.py` recorded them. Time stands still unless a test moves it, so what is
read is the same on every machine.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from opdb.meters import nvml

RECORDED = Path(__file__).parents[1] / "data" / "h200_nvml_answers.json"
BOOT_S = 5_000.0
"""What the monotonic clock says as the recording begins."""
WALL_S = 1_700_000_000.0
"""What the wall clock says then: a driver stamps its samples with that."""

RING = "power_samples_mw"


class RecordedDriver:
    """Answers as the driver did `at_s` seconds into the recording."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path = RECORDED) -> None:
        self.recorded: dict[str, Any] = json.loads(path.read_text())
        self.marks = {name: at for at, name in reversed(self.recorded["marks"])}
        self.at_s = 0.0
        questions = {
            "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
            "nvmlDeviceGetClockInfo": "clock_mhz",
            "nvmlDeviceGetCurrentClocksEventReasons": "clocks_event_reasons",
            "nvmlDeviceGetTemperature": "temperature_c",
        }
        for function, series in questions.items():
            monkeypatch.setattr(pynvml, function, lambda *_, name=series: self._now(name))
        monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetSamples", self._samples)
        clock = SimpleNamespace(
            monotonic=lambda: BOOT_S + self.at_s,
            time=lambda: WALL_S + self.at_s,
            sleep=self.sleep,
        )
        monkeypatch.setattr(nvml, "time", clock)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.at_s += seconds

    def between(self, series: str, start_s: float, end_s: float) -> list[tuple[float, int]]:
        """Return what was recorded from one second to another, of a ring by its stamps."""
        scale = 1e-6 if series == RING else 1.0
        moments = ((at * scale, answer) for at, answer in self.recorded[series])
        return [(at, answer) for at, answer in moments if start_s <= at <= end_s]

    def _now(self, series: str) -> int:
        values = self.recorded[series]
        return int(values[max(0, bisect_right([at for at, _ in values], self.at_s) - 1)][1])

    def _samples(self, _: object, kind: int, seen_us: int) -> tuple[int, list[SimpleNamespace]]:
        assert kind == pynvml.NVML_TOTAL_POWER_SAMPLES
        began_us = round(WALL_S * 1e6)
        found = [
            SimpleNamespace(timeStamp=began_us + us, sampleValue=SimpleNamespace(uiVal=answer))
            for us, answer in self.recorded[RING]
            if us * 1e-6 <= self.at_s and began_us + us > seen_us
        ]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 1, found
