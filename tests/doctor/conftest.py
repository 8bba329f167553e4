"""A healthy machine with one GPU, made beneath the checks, in which faults are planted."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nvitop
import pynvml
import pytest
import torch

from opdb import meters
from opdb.store import open_store
from opdb.units import MICRO
from tests.meters.test_nvml import UUID, mig


@dataclass
class Machine:
    """What NVML, torch, and the disk answer; a test changes one of them."""

    folder: Path
    database: Path
    programs: Path
    boards: int = 1
    mig: int = 0
    ticks: bool = True
    samples: bool = True
    processes: dict[int, str] = field(default_factory=dict)
    reasons: int = 0
    power_limit: int = 700_000
    lost: bool = False
    start_error: int | None = None
    gpus: int = 1
    free_bytes: int = 50_000_000_000

    def program(self, name: str) -> Path:
        """Put a program on the PATH and return it."""
        path = self.programs / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path


def refuse(code: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> Any:
    raise pynvml.NVMLError(code)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which every check finds all fine."""
    for name in ("programs", "include"):
        (tmp_path / name).mkdir()
    made = Machine(
        folder=tmp_path,
        database=tmp_path / "opdb.sqlite",
        programs=tmp_path / "programs",
    )
    for name in ("g++", "gcc", "ncu"):
        made.program(name)
    (tmp_path / "include" / "Python.h").touch()
    open_store(str(made.database)).close()
    answer_nvml(made, monkeypatch)
    answer_torch(made, monkeypatch)
    monkeypatch.setattr("opdb.doctor.METERS_WAIT_S", 0.1)
    monkeypatch.setattr(
        "opdb.compiled.sysconfig.get_paths", lambda: {"include": str(tmp_path / "include")}
    )
    monkeypatch.setattr(meters, "unavailable_reason", lambda: None)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=made.free_bytes, total=10**12)
    )
    answer_metadata(made, monkeypatch)
    monkeypatch.setenv("PATH", str(made.programs))
    monkeypatch.setenv("OPDB_DB", str(made.database))
    for name in ("CXX", "CC", "CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return made


def answer_metadata(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let opdb require what the machine says, and Triton be installed."""
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "3.0" if name == "triton" else version(name)
    )


def answer_nvml(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML answer for the machine, on top of what the meters' tests have it say."""
    mig(monkeypatch, 0)
    counter = itertools.count(1_000_000, 37)
    wall_us = int(time.time() / MICRO)
    stamps = itertools.count(wall_us, 20_000)

    def start() -> None:
        if made.start_error is not None:
            refuse(made.start_error)

    def samples(_: object, kind: int, seen_us: int) -> tuple[int, list[SimpleNamespace]]:
        if not made.samples or kind != pynvml.NVML_TOTAL_POWER_SAMPLES:
            refuse()
        value = SimpleNamespace(uiVal=120_000)
        return 1, [SimpleNamespace(timeStamp=next(stamps), sampleValue=value)]

    def processes(uuid: str) -> SimpleNamespace:
        assert uuid == UUID
        found = {**made.processes, os.getpid(): "python"}
        named = {p: SimpleNamespace(name=lambda name=name: name) for p, name in found.items()}
        return SimpleNamespace(processes=lambda: named)

    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": start,
        "nvmlDeviceGetCount": lambda: made.boards,
        "nvmlDeviceGetHandleByIndex": lambda i: refuse() if made.lost else f"board {i}",
        "nvmlDeviceGetUUID": lambda _: UUID,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMigMode": lambda _: [made.mig, made.mig],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: made.reasons,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: made.power_limit,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
        "nvmlDeviceGetClockInfo": lambda *_: 345,
        "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
        "nvmlDeviceGetTotalEnergyConsumption": lambda _: next(counter) if made.ticks else 7,
        "nvmlDeviceGetSamples": samples,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    monkeypatch.setattr(nvitop, "Device", processes)


def answer_torch(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the installed torch be a CUDA build that sees the machine's GPUs."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: made.gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: made.gpus)
