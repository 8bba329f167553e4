"""A meter without the series that failed a board's tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opdb.meters import Meter, Reading


class TrustedMeter:
    """Hands out another meter's windows without what is not trusted there.

    `failed` says why, by what failed: "samples" (the driver's ring) or "counter". What is then left
    without any power says so in its reason.
    """

    def __init__(self, meter: Meter, failed: Mapping[str, str]) -> None:
        self._meter, self._failed = meter, failed
        self.name = meter.name

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return what was seen from `start_s` to `end_s` by what is trusted."""
        reading = self._meter.window(start_s, end_s, lag_s=lag_s)
        if "counter" in self._failed:
            reading = replace(reading, counter_edges=())
        if "samples" in self._failed:
            reading = replace(reading, power_samples=())
        if reading.power_samples or len(reading.counter_edges) > 1:
            return replace(reading, reason=None)
        reasons = [f"{name} failed a test: {why}" for name, why in self._failed.items()]
        return replace(reading, reason="; ".join([*reasons, *filter(None, [reading.reason])]))

    def close(self) -> None:
        """Close the meter behind."""
        self._meter.close()
