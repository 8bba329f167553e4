"""The machine that measures, the campaign under way on it, and how its GPU starts kernels."""

from __future__ import annotations

import gc
import hashlib
import os
import platform as python_platform
import re
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

import opdb
from opdb.bench.replay import Clock, CudaClock, capture, clock_for, mean_time_s
from opdb.derive.costs import FOREIGN_PROCESS, STARTED_FASTER
from opdb.errors import CannotMeasureError, InputError
from opdb.meters import Meter, NoMeter, RaplMeter, unavailable_reason
from opdb.progress import Display
from opdb.records import Board, Calibration, Campaign, Device, Host, Json, Stretch
from opdb.units import plural
from opdb.workers import Crew, WorkerDevice, on_each


@dataclass(frozen=True)
class Platform:
    torch_device: str
    device: Device
    board: Board
    host: Host
    environment: dict[str, str | None]


def this_host() -> Host:
    """Describe the issuing machine; the id is a hash, so that no host name is published."""
    cpuinfo, machine = Path("/proc/cpuinfo"), Path("/etc/machine-id")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    # python_platform.processor() starts a program to ask
    processor = named[1].strip() if named else python_platform.processor()
    cpu = processor or f"{sys.platform} {python_platform.machine()}"
    identity = machine.read_text() if machine.exists() else python_platform.node()
    return Host(
        id=hashlib.sha256(f"{identity}|{cpu}".encode()).hexdigest()[:16],
        cpu=cpu,
        cores=os.cpu_count() or 1,
        system=f"{python_platform.system()} {python_platform.release()}",
    )


def slug_of(name: str) -> str:
    """Turn a vendor's name into a folder name: "NVIDIA H200" → "nvidia-h200"."""
    plain = re.sub(r"\((r|tm)\)|@.*$|\bcpu\b|\bprocessor\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain)[:90].strip("-") or "unnamed"


def detect(device: str | None = None) -> Platform:
    """Describe the device to measure on: "cuda", "cuda:N", "cpu", or None for the best there is."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return _detect_cpu()
    found = re.fullmatch(r"cuda(?::(\d+))?", device)
    if not found:
        raise InputError(f"cannot measure on {device!r}; use 'cuda', 'cuda:N' or 'cpu'")
    if not torch.cuda.is_available():
        raise CannotMeasureError(
            f"no CUDA device for --device {device} (torch {torch.__version__} sees none); run on "
            "a machine with an NVIDIA GPU, or use --device cpu"
        )
    index, count = int(found[1] or 0), torch.cuda.device_count()
    if index >= count:
        there = plural(count, "CUDA device")
        raise CannotMeasureError(f"no device cuda:{index}; this machine has {there}")
    return _detect_cuda(index)


def current_settings() -> dict[str, Json]:
    return {
        "tf32_convolution": torch.backends.cudnn.allow_tf32,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "mha_fastpath": torch.backends.mha.get_fastpath_enabled(),
    }


def _detect_cuda(index: int) -> Platform:
    from opdb.meters.nvml import board_state, driver_version

    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    text = str(properties.uuid)
    uuid = text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"
    info = board_state(uuid)
    name = str(info.name)
    slug = slug_of(name)
    if info.power_limit_w and info.power_limit_w != info.default_power_limit_w:
        slug = f"{slug}-{info.power_limit_w:.0f}w"
    device = Device(
        slug=slug,
        name=name,
        type="cuda",
        power_limit_w=info.power_limit_w,
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        max_clock_hz=info.max_clock_hz,
    )
    cudnn = torch.backends.cudnn.version()
    environment = _environment() | {
        "driver": driver_version(),
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }
    return Platform(f"cuda:{index}", device, Board(uuid, slug), this_host(), environment)


def _detect_cpu() -> Platform:
    host = this_host()
    slug = slug_of(host.cpu)
    device = Device(
        slug=slug,
        name=host.cpu,
        type="cpu",
        power_limit_w=None,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        l2_bytes=None,
        max_clock_hz=None,
    )
    environment = _environment() | {"driver": None, "cuda": None, "cudnn": None}
    return Platform("cpu", device, Board(f"CPU-{host.id}", slug), host, environment)


def platforms(places: Sequence[WorkerDevice]) -> list[Platform]:
    """Return the platforms of several devices, each looked at by a process of its own.

    This process is to hold no memory of a GPU: it would be another process on the board.
    """
    found: list[Platform] = on_each(places, _platform, (), Display())[0]
    return list({platform.board: platform for platform in found}.values())


def _platform(device: str, display: Display, crew: Crew) -> Platform:
    return detect(device)


def _environment() -> dict[str, str | None]:
    return {
        "torch": torch.__version__,
        "python": python_platform.python_version(),
        "opdb": opdb.__version__,
    }


def open_meter(platform: Platform) -> Meter:
    if platform.device.type == "cuda":
        from opdb.meters.nvml import NvmlMeter

        return NvmlMeter(platform.board.uuid)
    reason = unavailable_reason()
    return NoMeter(reason) if reason else RaplMeter()


# The session that all measurements of a campaign share: platform, meter, clock, calibration.

UNCALIBRATED = Calibration(None, None, None, None, None, None)


def now() -> str:
    """Return the present moment as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def seconds_since(moment: str) -> float:
    """Return how long ago a moment (`now`) was, in seconds; below 0 for one of the future."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Session:
    platform: Platform
    meter: Meter
    campaign: Campaign
    restores: dict[str, Stretch] = field(default_factory=dict)
    """What restoring inputs cost, by the inputs' shapes: measured once a campaign."""
    launching: Launching | None = None

    @property
    def on_gpu(self) -> bool:
        return self.platform.device.type == "cuda"

    @property
    def clock(self) -> Clock:
        return clock_for(self.platform.device.type)

    @property
    def lag_s(self) -> float:
        return self.campaign.calibration.sample_lag_s or 0.0

    def calibrated(self, calibration: Calibration) -> Session:
        return replace(self, campaign=replace(self.campaign, calibration=calibration))

    @contextmanager
    def settled(self) -> Iterator[list[str]]:
        """Measure in the state in which all measurements start kernels.

        The list that is yielded holds, after the block, the flag that says where it was left.
        """
        flags: list[str] = []
        if self.launching:
            self.launching.settle()
        yield flags
        if self.launching:
            flags += self.launching.flags()

    def foreign(self) -> tuple[str, ...]:
        """Return the flags of what measures beside other processes on the board."""
        from opdb.meters.nvml import foreign_processes

        found = foreign_processes(self.platform.board.uuid)
        return tuple(f"{FOREIGN_PROCESS}: {process}" for process in found)

    def check_alive(self) -> None:
        if not self.on_gpu:
            return
        try:
            torch.zeros(1, device=self.platform.torch_device).add_(1).item()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise CannotMeasureError(
                f"{self.platform.device.name} ({self.platform.board.uuid}) stopped answering: "
                f"{why}; what was finished is stored. Look at nvidia-smi, then start again to go on"
            ) from error


def open_session(platform: Platform, meter: Meter) -> Session:
    campaign = Campaign(
        id=new_id(),
        board=platform.board,
        device=platform.device,
        host=platform.host,
        started_at=now(),
        environment=platform.environment,
        settings=current_settings(),
        calibration=UNCALIBRATED,
    )
    return Session(platform, meter, campaign)


def release(session: Session) -> None:
    gc.collect()
    if session.on_gpu:
        torch.cuda.empty_cache()


# The state in which a GPU starts kernels, the same one for all measurements.
#
# A GPU starts each kernel of a process 0.15 to 0.35 µs later once the process has launched some ten
# kernels on each of two streams, as warming up for a CUDA graph does, until any process makes or
# ends a CUDA context on the board (H100 and H200; docs/measuring.md). So kernels are launched on
# two streams before each measurement, and a chain of tiny kernels, timed after it, tells whether
# another process has changed the state meanwhile.

CHAIN = 200
REPLAYS = 20
TIMED = 5

RISE_S = 0.5
"""For so long the chain runs before it is timed first: the clock rises to its highest."""

FASTER = 0.93
"""A chain that takes this share of its usual time or less runs in the other state: 0.84 to 0.86 of
it on H100s and H200s; the same graph repeats to 0.3 %."""


class Launching:
    """Brings a CUDA device into the state, and tells whether it still is in it."""

    def __init__(self, device: str) -> None:
        self._side = torch.cuda.Stream(device)
        self._tiny = torch.zeros(32, device=device)
        self._graph = capture(self.chain, 1)
        began_s = time.monotonic()
        while time.monotonic() - began_s < RISE_S:
            self.time_s()
        self.settle()
        self.tiny_kernel_s = self.time_s()

    def settle(self) -> None:
        for stream in (torch.cuda.current_stream(), self._side):
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                self.chain()
        torch.cuda.synchronize()

    def time_s(self) -> float:
        replay, clock = self._graph.replay, CudaClock()
        replay()
        return statistics.median(mean_time_s(replay, clock, REPLAYS) for _ in range(TIMED)) / CHAIN

    def flags(self) -> tuple[str, ...]:
        found_s = self.time_s()
        if found_s > FASTER * self.tiny_kernel_s:
            return ()
        times = f"{found_s * 1e9:.0f} of {self.tiny_kernel_s * 1e9:.0f} ns"
        return (f"{STARTED_FASTER} ({times}): another process made or ended a CUDA context",)

    def chain(self) -> None:
        out = self._tiny
        for _ in range(CHAIN):
            out = torch.relu(out)
