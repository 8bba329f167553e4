"""The boards of this machine: what they are, their state, who works on them."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import pynvml

from opdb.errors import CannotMeasureError
from opdb.meters.nvml.binding import (
    PERCENT,
    answering,
    handle_of,
    instant_power_w,
    optional,
    scaled,
    start,
    throttle_reasons,
)
from opdb.meters.nvml.ring import POLL_PERIOD_S, keep_change, power_ring
from opdb.units import MEGA, MILLI


@dataclass(frozen=True)
class BoardInfo:
    """NVML's facts about one board; a quantity that it does not report is None."""

    uuid: str
    name: str
    driver: str
    power_limit_w: float | None
    default_power_limit_w: float | None
    max_clock_hz: float | None


def board_info(uuid: str) -> BoardInfo:
    """Describe the board with this UUID ("GPU-…").

    Raises:
        CannotMeasureError: no NVML, no such board, or the board is split by MIG (the power of an
            instance cannot be read).
    """
    start()
    handle = handle_of(uuid)
    mig = optional("nvmlDeviceGetMigMode", handle)
    if uuid.startswith("MIG-") or (mig and mig[0] == 1):
        raise CannotMeasureError(
            f"the board of {uuid} is split by MIG: NVML reports the power of the whole board, not "
            "of an instance, so no energy can be attributed; measure on a board without MIG"
        )
    with answering(uuid):
        name, driver = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlSystemGetDriverVersion()
    return BoardInfo(
        uuid=uuid,
        name=name,
        driver=driver,
        power_limit_w=scaled(optional("nvmlDeviceGetEnforcedPowerLimit", handle), MILLI),
        default_power_limit_w=scaled(
            optional("nvmlDeviceGetPowerManagementDefaultLimit", handle), MILLI
        ),
        max_clock_hz=scaled(
            optional("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM), MEGA
        ),
    )


def gpu_names() -> list[str]:
    """Name the GPUs of this machine that answer; empty where there is no NVIDIA driver."""
    try:
        return [state.name for state in board_states() if state.name is not None]
    except CannotMeasureError:
        return []


@dataclass(frozen=True)
class BoardState:
    """The state of one board at this moment; what NVML does not report is None.

    Without a `uuid` the driver lists the board and cannot reach it. `utilization` is a share of 1.
    """

    uuid: str | None
    name: str | None = None
    capability: tuple[int, int] | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    clock_hz: float | None = None
    max_clock_hz: float | None = None
    application_clock_hz: float | None = None
    default_application_clock_hz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    utilization: float | None = None


@dataclass(frozen=True)
class MeterAnswers:
    """What a board's meters said within `waited_s`.

    `new_samples` is how many power samples the driver's ring gained, None where it gives none;
    `ticks` how often the energy counter changed, None where there is no counter.
    """

    waited_s: float
    new_samples: int | None
    ticks: int | None
    instant_w: float | None


def driver_versions() -> tuple[str, str | None]:
    """Return the driver's version and the newest CUDA that it serves ("13.1").

    Raises:
        CannotMeasureError: NVML cannot be used.
    """
    start()
    version = optional("nvmlSystemGetCudaDriverVersion_v2")
    cuda = None if version is None else f"{version // 1000}.{version % 1000 // 10}"
    return pynvml.nvmlSystemGetDriverVersion(), cuda


def board_states() -> list[BoardState]:
    """Return the state of each board of this machine, split by MIG or not.

    Raises:
        CannotMeasureError: NVML cannot be used.
    """
    start()
    handles = [
        optional("nvmlDeviceGetHandleByIndex", index)
        for index in range(optional("nvmlDeviceGetCount") or 0)
    ]
    return [BoardState(None) if handle is None else _state(handle) for handle in handles]


def _state(handle: Any) -> BoardState:
    def clock_hz(call: str) -> float | None:
        return scaled(optional(call, handle, pynvml.NVML_CLOCK_SM), MEGA)

    mig = optional("nvmlDeviceGetMigMode", handle)
    capability = optional("nvmlDeviceGetCudaComputeCapability", handle)
    rates = optional("nvmlDeviceGetUtilizationRates", handle)
    reasons = optional("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0
    limit = optional("nvmlDeviceGetEnforcedPowerLimit", handle)
    default = optional("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    return BoardState(
        uuid=optional("nvmlDeviceGetUUID", handle),
        name=optional("nvmlDeviceGetName", handle),
        capability=None if capability is None else (capability[0], capability[1]),
        mig=None if mig is None else mig[0] == 1,
        power_limit_w=scaled(limit, MILLI),
        default_power_limit_w=scaled(default, MILLI),
        clock_hz=clock_hz("nvmlDeviceGetClockInfo"),
        max_clock_hz=clock_hz("nvmlDeviceGetMaxClockInfo"),
        application_clock_hz=clock_hz("nvmlDeviceGetApplicationsClock"),
        default_application_clock_hz=clock_hz("nvmlDeviceGetDefaultApplicationsClock"),
        throttle_reasons=throttle_reasons(reasons),
        utilization=None if rates is None else rates.gpu * PERCENT,
    )


def try_meters(uuid: str, wait_s: float) -> MeterAnswers:
    """Read each meter of a board until the counter and the ring have moved, `wait_s` at most.

    Raises:
        CannotMeasureError: NVML cannot be used, or does not know the board.
    """
    start()
    handle = handle_of(uuid)
    start_s = time.monotonic()
    ring = power_ring(handle)
    ring.read(start_s)
    before = len(ring.samples)
    counter: deque[tuple[float, float]] = deque()
    while True:
        now_s = time.monotonic()
        energy = optional("nvmlDeviceGetTotalEnergyConsumption", handle)
        keep_change(counter, scaled(energy, MILLI))
        ring.poll(now_s)
        moved = len(counter) > 1 and before < len(ring.samples)
        if moved or now_s - start_s >= wait_s:
            break
        time.sleep(POLL_PERIOD_S)
    return MeterAnswers(
        waited_s=now_s - start_s,
        new_samples=len(ring.samples) - before if ring.samples else None,
        ticks=len(counter) - 1 if counter else None,
        instant_w=instant_power_w(handle),
    )


def foreign_processes(uuid: str) -> list[str]:
    """Name the processes, other than this one, that hold a context on the board.

    Raises:
        CannotMeasureError: NVML does not answer for this board.
    """
    from nvitop import Device, GpuProcess

    with answering(uuid), GpuProcess.failsafe():  # one that ends meanwhile has no name any more
        found = Device(uuid=uuid).processes().items()
        return [f"{pid} ({process.name()})" for pid, process in found if pid != os.getpid()]
