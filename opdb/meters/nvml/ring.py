"""Values kept with their moments: one of the driver's rings of samples, and changes of a value."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import pynvml

from opdb.meters.nvml.binding import optional
from opdb.units import MICRO, MILLI

POLL_PERIOD_S = 0.004
"""How often the counter and the clock are read; the counter changes every 20 to 100 ms."""

RING_PERIOD_S = 0.02
"""How often the driver's ring of power samples is emptied (the ring holds 2.4 s)."""


def keep_change(history: deque[tuple[float, float]], value: float | None) -> None:
    """Append a value just read if it is another than the one before."""
    if value is not None and (not history or history[-1][1] != value):
        history.append((time.monotonic(), value))


class Ring:
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
        found = optional("nvmlDeviceGetSamples", self._handle, self._kind, self._seen_us)
        if found is None:
            return
        to_monotonic = time.monotonic() - time.time()
        for sample in found[1]:
            if sample.timeStamp > self._seen_us:
                self._seen_us = sample.timeStamp
                seconds = sample.timeStamp * MICRO + to_monotonic
                self.samples.append((seconds, sample.sampleValue.uiVal * self._scale))


def power_ring(handle: Any) -> Ring:
    """Return the ring of a board's power samples, in watts."""
    return Ring(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, scale=MILLI, period_s=RING_PERIOD_S)
