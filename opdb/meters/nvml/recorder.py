"""The recording side of the meter: `python -m opdb.meters.nvml.recorder UUID`.

A process of its own, for the energy counter takes milliseconds to read, and a thread would make the
issuing thread wait for the interpreter lock.
"""

from __future__ import annotations

import json
import select
import statistics
import sys
import time
from collections import deque
from itertools import pairwise
from typing import Any

import pynvml

from opdb.errors import CannotMeasureError
from opdb.meters.nvml.binding import (
    PERCENT,
    handle_of,
    instant_power_w,
    optional,
    scaled,
    start,
    throttle_reasons,
)
from opdb.meters.nvml.meter import Polling
from opdb.meters.nvml.ring import POLL_PERIOD_S, Ring, keep_change, power_ring
from opdb.units import MEGA, MILLI

UTILIZATION_PERIOD_S = 0.2
"""How often the ring of utilization samples is emptied; the driver makes one in 1/6 to 1 s."""

HISTORY_S = 120.0
"""How long readings are kept for a window that is asked for late."""

RING_WAIT_S = 0.3
"""How long to wait for the ring to reach the end of a window."""


class Recorder:
    """The recording side: polls NVML and answers windows, one JSON line each."""

    def __init__(self, uuid: str) -> None:
        start()
        self.handle = handle_of(uuid)
        self.ring = power_ring(self.handle)
        self.power = self.ring.samples
        self.utilization = Ring(
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
            counter = optional("nvmlDeviceGetTotalEnergyConsumption", self.handle)
            keep_change(self.counter, scaled(counter, MILLI))
        if self.watches_instant:
            keep_change(self.instant, instant_power_w(self.handle))
        now = time.monotonic()
        clock = optional("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM)
        reasons = optional("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
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

        Each covers the time since the one before it, and counts by how much of that lies in the
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
            "temperature": optional(
                "nvmlDeviceGetTemperature", self.handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            "utilization": self.utilization_between(start_s, end_s),
            "reasons": throttle_reasons(seen),
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
        Recorder(sys.argv[1]).serve()
    except CannotMeasureError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too and closes the database in order
