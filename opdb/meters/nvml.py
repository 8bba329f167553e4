"""NVIDIA boards through NVML: identity, power samples, energy counter, clocks.

The only importer of pynvml. What a board or a driver does not have is None. A meter asks a recorder
in a process of its own (`python -m opdb.meters.nvml UUID`): the energy counter takes milliseconds
to read, and a thread would make the issuing thread wait for the interpreter lock.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from opdb.errors import CannotMeasureError
from opdb.meters import Reading
from opdb.records import Trace
from opdb.units import MEGA, MICRO, MILLI

_REASONS = {
    "SwPowerCap": "software power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "hardware power brake",
    "ApplicationsClocksSetting": "application clocks",
}


def start() -> None:
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
    """Ask NVML for what every board has; where it refuses, say so of the board."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML does not answer for {board} ({error}); has the GPU gone away? See nvidia-smi; "
            "a lost GPU comes back with a reset (nvidia-smi -r) or a restart of the machine"
        ) from error


def scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def handle_of(uuid: str) -> Any:
    with answering(uuid):
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def throttle_reasons(bits: int) -> tuple[str, ...]:
    names = {getattr(pynvml, f"nvmlClocksEventReason{name}"): name for name in _REASONS}
    return tuple(_REASONS[name] for bit, name in names.items() if bits & bit)


# Values kept with their moments: the driver's ring of samples, and changes of a value.

POLL_PERIOD_S = 0.004
"""How often the counter and the clock are read; the counter changes every 20 to 100 ms."""

RING_PERIOD_S = 0.02
"""How often the driver's ring of power samples is emptied (the ring holds 2.4 s)."""


def keep_change(history: deque[tuple[float, float]], value: float | None) -> None:
    if value is not None and (not history or history[-1][1] != value):
        history.append((time.monotonic(), value))


class PowerRing:
    """What was taken out of the driver's ring of power samples: (monotonic seconds, watts)."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._seen_us = 0
        self._read_s = 0.0
        self.samples: deque[tuple[float, float]] = deque()

    def poll(self, now: float) -> None:
        if now - self._read_s >= RING_PERIOD_S:
            self.read(now)

    def read(self, now: float) -> None:
        """Take the driver's new samples; their time stamps are wall-clock microseconds."""
        self._read_s = now
        to_monotonic = time.monotonic() - time.time()
        kind = pynvml.NVML_TOTAL_POWER_SAMPLES
        found = optional("nvmlDeviceGetSamples", self._handle, kind, self._seen_us)
        for sample in () if found is None else found[1]:
            if sample.timeStamp > self._seen_us:
                self._seen_us = sample.timeStamp
                seconds = sample.timeStamp * MICRO + to_monotonic
                self.samples.append((seconds, sample.sampleValue.uiVal * MILLI))


# The boards of this machine: what they are, their state, who works on them.


def gpu_names() -> list[str]:
    """Name the GPUs of this machine that answer; empty where there is no NVIDIA driver."""
    try:
        return [state.name for state in board_states() if state.name is not None]
    except CannotMeasureError:
        return []


@dataclass(frozen=True)
class BoardState:
    """The state of one board at this moment; what NVML does not report is None.

    Without a `uuid` the driver lists the board and cannot reach it.
    """

    uuid: str | None
    name: str | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    max_clock_hz: float | None = None
    throttle_reasons: tuple[str, ...] = ()


def driver_version() -> str:
    start()
    return str(pynvml.nvmlSystemGetDriverVersion())


def board_states() -> list[BoardState]:
    start()
    handles = [
        optional("nvmlDeviceGetHandleByIndex", index)
        for index in range(optional("nvmlDeviceGetCount") or 0)
    ]
    return [BoardState(None) if handle is None else _state(handle) for handle in handles]


def board_state(uuid: str) -> BoardState:
    """Return the state of a board that is to be measured; it has a name.

    Raises:
        CannotMeasureError: NVML does not answer for it, or it is split by MIG.
    """
    start()
    handle = handle_of(uuid)
    state = _state(handle)
    if uuid.startswith("MIG-") or state.mig:
        raise CannotMeasureError(
            f"the board of {uuid} is split by MIG: NVML reports the power of the whole board, not "
            "of an instance, so no energy can be attributed; measure on a board without MIG"
        )
    with answering(uuid):
        return replace(state, uuid=uuid, name=pynvml.nvmlDeviceGetName(handle))


def _state(handle: Any) -> BoardState:
    mig = optional("nvmlDeviceGetMigMode", handle)
    reasons = optional("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0
    highest = optional("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM)
    limit = optional("nvmlDeviceGetEnforcedPowerLimit", handle)
    default = optional("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    return BoardState(
        uuid=optional("nvmlDeviceGetUUID", handle),
        name=optional("nvmlDeviceGetName", handle),
        mig=None if mig is None else mig[0] == 1,
        power_limit_w=scaled(limit, MILLI),
        default_power_limit_w=scaled(default, MILLI),
        max_clock_hz=scaled(highest, MEGA),
        throttle_reasons=throttle_reasons(reasons),
    )


def try_meters(uuid: str, wait_s: float) -> tuple[int, int]:
    """Return how many new power samples and ticks of the energy counter a board gives meanwhile."""
    start()
    handle, until_s = handle_of(uuid), time.monotonic() + wait_s
    ring = PowerRing(handle)
    ring.read(time.monotonic())
    before = len(ring.samples)
    counter: deque[tuple[float, float]] = deque()
    while time.monotonic() < until_s:
        energy = optional("nvmlDeviceGetTotalEnergyConsumption", handle)
        keep_change(counter, scaled(energy, MILLI))
        time.sleep(POLL_PERIOD_S)
    ring.read(time.monotonic())
    return len(ring.samples) - before, max(len(counter) - 1, 0)


def foreign_processes(uuid: str) -> list[str]:
    from nvitop import Device, GpuProcess

    with answering(uuid), GpuProcess.failsafe():  # one that ends meanwhile has no name any more
        found = Device(uuid=uuid).processes().items()
        return [f"{pid} ({process.name()})" for pid, process in found if pid != os.getpid()]


# Power of one board over a window of time, asked of a recorder in a process of its own.

ANSWERED_WITHIN_S = 60.0
"""A recorder that says nothing for so long hangs in the driver, as it may where a GPU is lost."""

CLOSED_WITHIN_S = 10.0

_SERIES = ("samples", "counter", "clock")


class NvmlMeter:
    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opdb.meters.nvml", uuid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # It answers each question with one line, so none is left in the buffer.
        if not select.select([self._process.stdout], [], [], ANSWERED_WITHIN_S)[0]:
            self._process.kill()
            raise CannotMeasureError(
                f"the NVML recorder of {self.uuid} gave no answer for {ANSWERED_WITHIN_S:.0f} s; "
                "has the GPU gone away? See nvidia-smi"
            )
        line = self._process.stdout.readline()
        if not line:
            raise CannotMeasureError(
                f"the NVML recorder of {self.uuid} ended (status {self._process.wait()}); "
                "has the GPU gone away? See nvidia-smi"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CannotMeasureError(f"NVML on {self.uuid}: {answer['error']}")
        return answer

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the recorder's last line says why it ended
            self._process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        answer = self._ask({"window": [start_s, end_s, lag_s]})
        edges = answer["counter"]
        return Reading(
            power_samples=tuple((t, w) for t, w in answer["power"]),
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            clock_samples_hz=tuple(answer["clock"]),
            temperature_c=answer["temperature"],
            throttle_reasons=tuple(answer["reasons"]),
            reason=None if answer["power"] else "the driver gave no power sample in the window",
        )

    def trace(self, start_s: float, end_s: float) -> Trace:
        answer = self._ask({"trace": [start_s, end_s]})
        series = {name: tuple((t, v) for t, v in answer[name]) for name in _SERIES}
        edges = series["counter"]
        return Trace(
            duration_s=end_s - start_s,
            power_samples=series["samples"],
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            clock_samples=series["clock"],
            answering=tuple(answer["answering"]),
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        try:
            self._process.wait(timeout=CLOSED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


HISTORY_S = 120.0
"""How long readings are kept for a window that is asked for late."""

RING_WAIT_S = 0.3
"""How long to wait for the ring to reach the end of a window."""


class PowerRecorder:
    """The recording side: polls NVML and answers windows, one JSON line each."""

    def __init__(self, uuid: str) -> None:
        start()
        self.handle = handle_of(uuid)
        self.ring = PowerRing(self.handle)
        self.power = self.ring.samples
        self.counter: deque[tuple[float, float]] = deque()
        self.clock: deque[tuple[float, float, int]] = deque()

    def poll(self) -> None:
        counter = optional("nvmlDeviceGetTotalEnergyConsumption", self.handle)
        keep_change(self.counter, scaled(counter, MILLI))
        now = time.monotonic()
        clock = optional("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM)
        reasons = optional("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
        if clock is not None:
            self.clock.append((now, clock * MEGA, reasons or 0))
        self.ring.poll(now)
        for history in (self.power, self.counter, self.clock):
            while history and history[0][0] < now - HISTORY_S:
                history.popleft()

    def await_ring(self, end_s: float) -> None:
        deadline = time.monotonic() + RING_WAIT_S
        while (not self.power or self.power[-1][0] < end_s) and time.monotonic() < deadline:
            self.poll()
            time.sleep(POLL_PERIOD_S)

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if "window" in request:
            return self.answer(*request["window"])
        return self.trace(*request["trace"])

    def trace(self, start_s: float, end_s: float) -> dict[str, Any]:
        self.await_ring(end_s)
        series = {
            "samples": self.power,
            "counter": self.counter,
            "clock": [(t, hz) for t, hz, _ in self.clock],
        }
        cut = {
            name: [(t - start_s, value) for t, value in values if start_s <= t <= end_s]
            for name, values in series.items()
        }
        return {**cut, "answering": [name for name, values in series.items() if values]}

    def answer(self, start_s: float, end_s: float, lag_s: float) -> dict[str, Any]:
        self.await_ring(end_s + lag_s)
        first, last = start_s + lag_s, end_s + lag_s
        clocks = [(hz, reasons) for t, hz, reasons in self.clock if start_s <= t <= end_s]
        seen = 0
        for _, reasons in clocks:
            seen |= reasons
        return {
            "power": [(t - first, w) for t, w in self.power if first <= t <= last],
            "counter": [(t - start_s, j) for t, j in self.counter if start_s <= t <= end_s],
            "clock": [hz for hz, _ in clocks],
            "temperature": optional(
                "nvmlDeviceGetTemperature", self.handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            "reasons": throttle_reasons(seen),
        }

    def serve(self) -> None:
        print(json.dumps({"ready": True}), flush=True)
        while True:
            self.poll()
            readable, _, _ = select.select([sys.stdin], [], [], POLL_PERIOD_S)
            if readable:
                line = sys.stdin.readline()
                if not line:
                    return
                print(json.dumps(self.reply(json.loads(line))), flush=True)


if __name__ == "__main__":
    try:
        PowerRecorder(sys.argv[1]).serve()
    except CannotMeasureError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too and closes the database in order
