"""NVIDIA boards through NVML: identity, power samples, energy counter, clocks.

The only importer of pynvml. Readings are taken in a process of their own (`python -m
opdb.meters.nvml UUID`): the energy counter takes milliseconds to read, and a thread would make the
issuing thread wait for the interpreter lock.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import pynvml

from opdb.errors import CannotMeasureError
from opdb.meters import Reading
from opdb.records import Trace
from opdb.units import MEGA, MICRO, MILLI

POLL_PERIOD_S = 0.004
"""How often the counter and the clock are read; the counter changes every 20 to 100 ms."""

RING_PERIOD_S = 0.02
"""How often the driver's ring of power samples is emptied (the ring holds 2.4 s)."""

UTILIZATION_PERIOD_S = 0.2
"""How often the ring of utilization samples is emptied; the driver makes one in 1/6 to 1 s."""

PERCENT = 0.01

HISTORY_S = 120.0
"""How long readings are kept for a window that is asked for late."""

RING_WAIT_S = 0.3
"""How long to wait for the ring to reach the end of a window."""

Polling: TypeAlias = Literal["usual", "fast", "none"]
"""How often the counter is read: every few milliseconds, back to back, not at all."""

POWER_INSTANT_FIELD = 186
"""NVML_FI_DEV_POWER_INSTANT; older bindings lack the name."""

_SERIES = ("samples", "counter", "instant", "clock")
_REASONS = {
    "SwPowerCap": "software power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "hardware power brake",
    "ApplicationsClocksSetting": "application clocks",
}


@dataclass(frozen=True)
class BoardInfo:
    """What NVML says about one board; a quantity that it does not report is None."""

    uuid: str
    name: str
    driver: str
    cuda_driver: str
    power_limit_w: float | None
    default_power_limit_w: float | None
    max_clock_hz: float | None


def _start() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML cannot be used ({error}); install the NVIDIA driver (libnvidia-ml.so.1), "
            "or bench the processor with --device cpu"
        ) from error


def _optional(call: str, *arguments: Any) -> Any:
    """Call an NVML function that not every board or driver has; None where it has not."""
    try:
        return getattr(pynvml, call)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _reason_bit(name: str) -> int:
    """Return the bit of a clock reason; older bindings spell the prefix differently."""
    for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
        if hasattr(pynvml, prefix + name):
            return int(getattr(pynvml, prefix + name))
    return 0


def _handle(uuid: str) -> Any:
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        raise CannotMeasureError(
            f"NVML does not know the board {uuid} ({error}); was the GPU removed or reset? "
            "See nvidia-smi -L"
        ) from error


def board_info(uuid: str) -> BoardInfo:
    """Describe the board with this UUID ("GPU-…").

    Raises:
        CannotMeasureError: no NVML, no such board, or the board is split by MIG (the power of an
            instance cannot be read).
    """
    _start()
    handle = _handle(uuid)
    mig = _optional("nvmlDeviceGetMigMode", handle)
    if uuid.startswith("MIG-") or (mig and mig[0] == 1):
        raise CannotMeasureError(
            f"the board of {uuid} is split by MIG: NVML reports the power of the whole board, not "
            "of an instance, so no energy can be attributed; measure on a board without MIG"
        )
    version = _optional("nvmlSystemGetCudaDriverVersion_v2")
    return BoardInfo(
        uuid=uuid,
        name=pynvml.nvmlDeviceGetName(handle),
        driver=pynvml.nvmlSystemGetDriverVersion(),
        cuda_driver="" if version is None else f"{version // 1000}.{version % 1000 // 10}",
        power_limit_w=_scaled(_optional("nvmlDeviceGetEnforcedPowerLimit", handle), MILLI),
        default_power_limit_w=_scaled(
            _optional("nvmlDeviceGetPowerManagementDefaultLimit", handle), MILLI
        ),
        max_clock_hz=_scaled(
            _optional("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM), MEGA
        ),
    )


def gpu_names() -> list[str]:
    """Name the GPUs of this machine; empty where there is no NVIDIA driver."""
    try:
        _start()
    except CannotMeasureError:
        return []
    count = pynvml.nvmlDeviceGetCount()
    return [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]


@dataclass(frozen=True)
class BoardState:
    """How one board stands at this moment; what NVML does not report is None.

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
    memory_used_bytes: int | None = None


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
    _start()
    version = _optional("nvmlSystemGetCudaDriverVersion_v2")
    cuda = None if version is None else f"{version // 1000}.{version % 1000 // 10}"
    return pynvml.nvmlSystemGetDriverVersion(), cuda


def board_states() -> list[BoardState]:
    """Return how each board of this machine stands, split by MIG or not.

    Raises:
        CannotMeasureError: NVML cannot be used.
    """
    _start()
    handles = [
        _optional("nvmlDeviceGetHandleByIndex", index)
        for index in range(_optional("nvmlDeviceGetCount") or 0)
    ]
    return [BoardState(None) if handle is None else _state(handle) for handle in handles]


def _state(handle: Any) -> BoardState:
    def clock_hz(call: str) -> float | None:
        return _scaled(_optional(call, handle, pynvml.NVML_CLOCK_SM), MEGA)

    mig = _optional("nvmlDeviceGetMigMode", handle)
    capability = _optional("nvmlDeviceGetCudaComputeCapability", handle)
    rates = _optional("nvmlDeviceGetUtilizationRates", handle)
    memory = _optional("nvmlDeviceGetMemoryInfo", handle)
    reasons = _optional("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0
    limit = _optional("nvmlDeviceGetEnforcedPowerLimit", handle)
    default = _optional("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    return BoardState(
        uuid=_optional("nvmlDeviceGetUUID", handle),
        name=_optional("nvmlDeviceGetName", handle),
        capability=None if capability is None else (capability[0], capability[1]),
        mig=None if mig is None else mig[0] == 1,
        power_limit_w=_scaled(limit, MILLI),
        default_power_limit_w=_scaled(default, MILLI),
        clock_hz=clock_hz("nvmlDeviceGetClockInfo"),
        max_clock_hz=clock_hz("nvmlDeviceGetMaxClockInfo"),
        application_clock_hz=clock_hz("nvmlDeviceGetApplicationsClock"),
        default_application_clock_hz=clock_hz("nvmlDeviceGetDefaultApplicationsClock"),
        throttle_reasons=tuple(w for name, w in _REASONS.items() if reasons & _reason_bit(name)),
        utilization=None if rates is None else rates.gpu * PERCENT,
        memory_used_bytes=None if memory is None else int(memory.used),
    )


def try_meters(uuid: str, wait_s: float) -> MeterAnswers:
    """Read each meter of a board until the counter and the ring have moved, `wait_s` at most.

    Raises:
        CannotMeasureError: NVML cannot be used, or does not know the board.
    """
    _start()
    handle = _handle(uuid)
    start_s = time.monotonic()
    ring = _Ring(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, scale=MILLI, period_s=RING_PERIOD_S)
    ring.read(start_s)
    before = len(ring.samples)
    counter: deque[tuple[float, float]] = deque()
    while True:
        now_s = time.monotonic()
        energy = _optional("nvmlDeviceGetTotalEnergyConsumption", handle)
        _keep_change(counter, _scaled(energy, MILLI))
        ring.poll(now_s)
        moved = len(counter) > 1 and before < len(ring.samples)
        if moved or now_s - start_s >= wait_s:
            break
        time.sleep(POLL_PERIOD_S)
    return MeterAnswers(
        waited_s=now_s - start_s,
        new_samples=len(ring.samples) - before if ring.samples else None,
        ticks=len(counter) - 1 if counter else None,
        instant_w=_instant_power_w(handle),
    )


def foreign_processes(uuid: str) -> list[str]:
    """Name the processes, other than this one, that hold a context on the board."""
    from nvitop import Device

    return [
        f"{pid} ({process.name()})"
        for pid, process in Device(uuid=uuid).processes().items()
        if pid != os.getpid()
    ]


class NvmlMeter:
    """Power of one NVIDIA board, recorded by a process of its own."""

    name = "nvml"

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
        """Return what the board drew from `start_s` to `end_s` (monotonic seconds).

        Raises:
            CannotMeasureError: the recorder has ended or the driver refused.
        """
        answer = self._ask({"window": [start_s, end_s, lag_s]})
        edges = answer["counter"]
        return Reading(
            power_samples=tuple((t, w) for t, w in answer["power"]),
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            clock_samples_hz=tuple(answer["clock"]),
            temperature_c=answer["temperature"],
            throttle_reasons=tuple(answer["reasons"]),
            utilization=answer["utilization"],
            reason=None if answer["power"] else "the driver gave no power sample in the window",
        )

    def watch(self, polling: Polling = "usual", *, instant: bool = False) -> None:
        """Read the counter this often from now on and, where asked, the instant power as well.

        Raises:
            CannotMeasureError: the recorder has ended.
        """
        self._ask({"watch": [polling, instant]})

    def trace(self, start_s: float, end_s: float) -> Trace:
        """Return all that was recorded from `start_s` to `end_s` (monotonic seconds).

        Raises:
            CannotMeasureError: the recorder has ended or the driver refused.
        """
        answer = self._ask({"trace": [start_s, end_s]})
        series = {name: tuple((t, v) for t, v in answer[name]) for name in _SERIES}
        edges = series["counter"]
        return Trace(
            duration_s=end_s - start_s,
            power_samples=series["samples"],
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            instant_samples=series["instant"],
            clock_samples=series["clock"],
            answering=tuple(answer["answering"]),
        )

    def close(self) -> None:
        """End the recorder."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        self._process.wait(timeout=10)


def _keep_change(history: deque[tuple[float, float]], value: float | None) -> None:
    """Append a value just read if it is another than the one before."""
    if value is not None and (not history or history[-1][1] != value):
        history.append((time.monotonic(), value))


def _instant_power_w(handle: Any) -> float | None:
    """Return the board's instant power; None where the driver does not report it."""
    found = _optional("nvmlDeviceGetFieldValues", handle, [POWER_INSTANT_FIELD])
    if found is None or found[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return float(found[0].value.uiVal) * MILLI


class _Ring:
    """What was taken out of one of the driver's rings of samples: (monotonic seconds, value)."""

    def __init__(self, handle: Any, kind: int, *, scale: float, period_s: float) -> None:
        self._handle, self._kind, self._scale, self._period_s = handle, kind, scale, period_s
        self._seen_us = 0
        self._read_s = 0.0
        self.samples: deque[tuple[float, float]] = deque()

    def poll(self, now: float) -> None:
        """Read the ring if that was not done within its period."""
        if now - self._read_s >= self._period_s:
            self.read(now)

    def read(self, now: float) -> None:
        """Take the driver's new samples; their time stamps are wall-clock microseconds."""
        self._read_s = now
        found = _optional("nvmlDeviceGetSamples", self._handle, self._kind, self._seen_us)
        if found is None:
            return
        to_monotonic = time.monotonic() - time.time()
        for sample in found[1]:
            if sample.timeStamp > self._seen_us:
                self._seen_us = sample.timeStamp
                seconds = sample.timeStamp * MICRO + to_monotonic
                self.samples.append((seconds, sample.sampleValue.uiVal * self._scale))


class _Recorder:
    """The recording side: polls NVML and answers windows, one JSON line each."""

    def __init__(self, uuid: str) -> None:
        _start()
        self.handle = _handle(uuid)
        self.ring = _Ring(
            self.handle, pynvml.NVML_TOTAL_POWER_SAMPLES, scale=MILLI, period_s=RING_PERIOD_S
        )
        self.power = self.ring.samples
        self.utilization = _Ring(
            self.handle,
            pynvml.NVML_GPU_UTILIZATION_SAMPLES,
            scale=PERCENT,
            period_s=UTILIZATION_PERIOD_S,
        )
        self.counter: deque[tuple[float, float]] = deque()
        self.clock: deque[tuple[float, float, int]] = deque()
        self.instant: deque[tuple[float, float]] = deque()
        self.polling: Polling = "usual"
        self.watches_instant = False

    @property
    def pause_s(self) -> float:
        """How long to wait between two polls."""
        return 0.0 if self.polling == "fast" else POLL_PERIOD_S

    def poll(self) -> None:
        """Read the counter, the clock and, less often, the rings."""
        if self.polling != "none":
            counter = _optional("nvmlDeviceGetTotalEnergyConsumption", self.handle)
            _keep_change(self.counter, _scaled(counter, MILLI))
        if self.watches_instant:
            _keep_change(self.instant, _instant_power_w(self.handle))
        now = time.monotonic()
        clock = _optional("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM)
        reasons = _optional("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
        if clock is not None:
            self.clock.append((now, clock * MEGA, reasons or 0))
        self.ring.poll(now)
        self.utilization.poll(now)
        kept = (self.power, self.utilization.samples, self.counter, self.clock, self.instant)
        for history in kept:
            while history and history[0][0] < now - HISTORY_S:
                history.popleft()

    def utilization_between(self, start_s: float, end_s: float) -> float | None:
        """Return the mean utilization of a window (0 to 1) by the samples that end in it or after.

        Each tells of the time since the one before it, and counts by how much of that lies in the
        window: visits are hardly longer than the driver's sampling period.
        """
        self.utilization.read(time.monotonic())
        weights, shares = [], []
        for (before_s, _), (at_s, share) in pairwise(self.utilization.samples):
            inside_s = min(at_s, end_s) - max(before_s, start_s)
            if inside_s > 0:
                weights.append(inside_s)
                shares.append(share)
        return statistics.fmean(shares, weights) if weights else None

    def await_ring(self, end_s: float) -> None:
        """Record on until the ring reaches the end of a window, but not for ever."""
        deadline = time.monotonic() + RING_WAIT_S
        while (not self.power or self.power[-1][0] < end_s) and time.monotonic() < deadline:
            self.poll()
            time.sleep(POLL_PERIOD_S)

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request: a window, a trace, or how to watch from now on."""
        if "window" in request:
            return self.answer(*request["window"])
        if "trace" in request:
            return self.trace(*request["trace"])
        self.polling, self.watches_instant = request["watch"]
        return {}

    def trace(self, start_s: float, end_s: float) -> dict[str, Any]:
        """Cut all series out of what was recorded, each value with its moment."""
        self.await_ring(end_s)
        series = {
            "samples": self.power,
            "counter": self.counter,
            "instant": self.instant,
            "clock": [(t, hz) for t, hz, _ in self.clock],
        }
        cut = {
            name: [(t - start_s, value) for t, value in values if start_s <= t <= end_s]
            for name, values in series.items()
        }
        return {**cut, "answering": [name for name, values in series.items() if values]}

    def answer(self, start_s: float, end_s: float, lag_s: float) -> dict[str, Any]:
        """Cut a window out of what was recorded."""
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
            "temperature": _optional(
                "nvmlDeviceGetTemperature", self.handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            "utilization": self.utilization_between(start_s, end_s),
            "reasons": [words for name, words in _REASONS.items() if seen & _reason_bit(name)],
        }

    def serve(self) -> None:
        """Record until standard input ends, answering one window a line."""
        print(json.dumps({"ready": True}), flush=True)
        while True:
            self.poll()
            readable, _, _ = select.select([sys.stdin], [], [], self.pause_s)
            if readable:
                line = sys.stdin.readline()
                if not line:
                    return
                print(json.dumps(self.reply(json.loads(line))), flush=True)


if __name__ == "__main__":
    try:
        _Recorder(sys.argv[1]).serve()
    except CannotMeasureError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too and closes the database in order
