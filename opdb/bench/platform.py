"""The machine that measures: device, board, host, environment and meter."""

from __future__ import annotations

import os
import platform as python_platform
import re
from dataclasses import dataclass

import torch

import opdb
from opdb.errors import CannotMeasureError, InputError
from opdb.meters import Meter, NoMeter
from opdb.meters.rapl import RaplMeter, unavailable_reason
from opdb.records import Board, Device, Host, Json
from opdb.this_host import this_host
from opdb.units import plural


@dataclass(frozen=True)
class Platform:
    """The machine of a campaign. `torch_device` is where tensors are made ("cuda:0" or "cpu")."""

    torch_device: str
    device: Device
    board: Board
    host: Host
    environment: dict[str, str | None]


def slug_of(name: str) -> str:
    """Turn a vendor's name into a folder name: "NVIDIA H200" → "nvidia-h200"."""
    plain = re.sub(r"\((r|tm)\)|@.*$|\bcpu\b|\bprocessor\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain)[:90].strip("-") or "unnamed"


def detect(device: str | None = None) -> Platform:
    """Describe the device to measure on: "cuda", "cuda:N", "cpu", or None for the best there is.

    Raises:
        InputError: the name is none of these.
        CannotMeasureError: the device is not there, or is split by MIG.
    """
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
    """Return the backend settings in force in this process."""
    return {
        "tf32_convolution": torch.backends.cudnn.allow_tf32,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "mha_fastpath": torch.backends.mha.get_fastpath_enabled(),
    }


def cuda_devices() -> int:
    """Return how many CUDA devices this process may see; none of them is touched."""
    return torch.cuda.device_count()


def _detect_cuda(index: int) -> Platform:
    from opdb.meters.nvml import board_info

    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    text = str(properties.uuid)
    info = board_info(text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}")
    slug = slug_of(info.name)
    if info.power_limit_w and info.power_limit_w != info.default_power_limit_w:
        slug = f"{slug}-{info.power_limit_w:.0f}w"
    device = Device(
        slug=slug,
        name=info.name,
        type="cuda",
        power_limit_w=info.power_limit_w,
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        max_clock_hz=info.max_clock_hz,
    )
    cudnn = torch.backends.cudnn.version()
    environment = _environment() | {
        "driver": info.driver,
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }
    return Platform(f"cuda:{index}", device, Board(info.uuid, slug), this_host(), environment)


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


def _environment() -> dict[str, str | None]:
    return {
        "torch": torch.__version__,
        "python": python_platform.python_version(),
        "opdb": opdb.__version__,
    }


def open_meter(platform: Platform) -> Meter:
    """Start the meter that fits the platform; where none can be used, one that says why."""
    if platform.device.type == "cuda":
        from opdb.meters.nvml import NvmlMeter

        return NvmlMeter(platform.board.uuid)
    reason = unavailable_reason()
    return NoMeter(reason) if reason else RaplMeter()
