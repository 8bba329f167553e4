"""A recorded trace played back as a meter."""

from __future__ import annotations

import json
from pathlib import Path

from opdb.meters import Reading


class ReplayMeter:
    """Hands out windows of a trace that was recorded from a real board.

    The trace is JSON: {"device", "recorded_at", "power": [[seconds, watts], …], "counter":
    [[seconds, joules], …], "clock": [[seconds, hertz], …]}. Time 0 of the trace is `start_s`.
    """

    def __init__(self, path: Path, *, start_s: float = 0.0) -> None:
        trace = json.loads(path.read_text())
        self._power: list[list[float]] = trace["power"]
        self._counter: list[list[float]] = trace["counter"]
        self._clock: list[list[float]] = trace["clock"]
        self._start_s = start_s

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return the part of the trace from `start_s` to `end_s`."""
        first, last = start_s - self._start_s, end_s - self._start_s
        edges = [(t - first, j) for t, j in self._counter if first <= t <= last]
        power = tuple((t - lag_s - first, w) for t, w in self._power if first <= t - lag_s <= last)
        return Reading(
            power_samples=power,
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            clock_samples_hz=tuple(hz for t, hz in self._clock if first <= t <= last),
            reason=None if power else "the trace has no power sample in the window",
        )

    def close(self) -> None:
        """Do nothing."""
