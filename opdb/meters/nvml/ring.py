"""Values kept with their moments: one of the driver's rings of samples, and changes of a value."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import pynvml

from opdb.meters.nvml.binding import optional
from opdb.units import MICRO, MILLI

POLL_PERIOD_S = 0.004
"""How often the counter and the clock are read; the counter changes every 20 to 100 ms."""

RING_PERIOD_S = 0.02
"""How often the driver's ring of power samples is emptied (the ring holds 2.4 s)."""

CLOCK_STEP_S = 0.5
"""A host's clock that moves by more between two looks was set; NTP moves it less."""


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
        self._to_monotonic = time.monotonic() - time.time()
        self._stale_us: set[int] = set()
        self.samples: deque[tuple[float, float]] = deque()

    def _newer(self, seen_us: int) -> Sequence[Any]:
        """Return the samples in the ring that are stamped later."""
        found = optional("nvmlDeviceGetSamples", self._handle, self._kind, seen_us)
        return () if found is None else found[1]

    def poll(self, now: float) -> None:
        """Read the ring if that was not done within its period."""
        if now - self._read_s >= self._period_s:
            self.read(now)

    def read(self, now: float) -> None:
        """Take the driver's new samples; their time stamps are wall-clock microseconds.

        Where the host's clock was set meanwhile, those stamped before are left out: nobody knows
        when they were.
        """
        self._read_s = now
        to_monotonic = time.monotonic() - time.time()
        if abs(to_monotonic - self._to_monotonic) > CLOCK_STEP_S:
            self._stale_us = {sample.timeStamp for sample in self._newer(0)}
            self._seen_us = round(time.time() / MICRO)
        self._to_monotonic = to_monotonic
        for sample in self._newer(self._seen_us):
            if sample.timeStamp > self._seen_us and sample.timeStamp not in self._stale_us:
                self._seen_us = sample.timeStamp
                seconds = sample.timeStamp * MICRO + to_monotonic
                self.samples.append((seconds, sample.sampleValue.uiVal * self._scale))


def power_ring(handle: Any) -> Ring:
    """Return the ring of a board's power samples, in watts."""
    return Ring(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, scale=MILLI, period_s=RING_PERIOD_S)
