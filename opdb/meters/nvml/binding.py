"""How pynvml is asked here: what a board or a driver does not have is None."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from opdb.errors import CannotMeasureError
from opdb.units import MILLI

POWER_INSTANT_FIELD = 186
"""NVML_FI_DEV_POWER_INSTANT; older bindings lack the name."""

PERCENT = 0.01

_REASONS = {
    "SwPowerCap": "software power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "hardware power brake",
    "ApplicationsClocksSetting": "application clocks",
}


def start() -> None:
    """Start NVML; doing so again is harmless.

    Raises:
        CannotMeasureError: there is no driver, or it does not answer.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML cannot be used ({error}); install the NVIDIA driver (libnvidia-ml.so.1), "
            "or bench the processor with --device cpu"
        ) from error


def optional(call: str, *arguments: Any) -> Any:
    """Call an NVML function that not every board or driver has; None where it has not."""
    try:
        return getattr(pynvml, call)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


@contextmanager
def answering(board: str) -> Iterator[None]:
    """Ask NVML for what every board has; where it refuses, say so of the board.

    Raises:
        CannotMeasureError: it does not answer for this board.
    """
    try:
        yield
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML does not answer for {board} ({error}); has the GPU gone away? See nvidia-smi; "
            "a lost GPU comes back with a reset (nvidia-smi -r) or a restart of the machine"
        ) from error


def scaled(value: int | None, factor: float) -> float | None:
    """Return a reading in base SI; None where there is none."""
    return None if value is None else value * factor


def handle_of(uuid: str) -> Any:
    """Return NVML's handle of a board.

    Raises:
        CannotMeasureError: it knows no such board (any more).
    """
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML does not know the board {uuid} ({error}); was the GPU removed or reset? "
            "See nvidia-smi -L"
        ) from error


def instant_power_w(handle: Any) -> float | None:
    """Return the board's instant power; None where the driver does not report it."""
    found = optional("nvmlDeviceGetFieldValues", handle, [POWER_INSTANT_FIELD])
    if found is None or found[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return float(found[0].value.uiVal) * MILLI


def _reason_bit(name: str) -> int:
    """Return the bit of a clock reason; older bindings spell the prefix differently."""
    for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
        if hasattr(pynvml, prefix + name):
            return int(getattr(pynvml, prefix + name))
    return 0


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Return in words why a clock is held down."""
    return tuple(words for name, words in _REASONS.items() if bits & _reason_bit(name))
