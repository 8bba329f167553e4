"""Meters: what a board draws over a window of time, through one narrow protocol.

A meter records all the time and is asked afterwards for a window, so the thread that issues the
work never waits for a reading. Times are seconds of `time.monotonic()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True)
class Reading:
    """The readings of a meter in one window.

    `power_samples` are (seconds since the window began, watts). `counter_edges` are (seconds since
    the window began, joules since the first edge), one for each update of an energy counter that
    fell into the window. `throttle_reasons` are the driver's own words for why the clock was held
    back. `utilization` is the share of the window (0 to 1) in which the driver saw a kernel run, as
    its tools show it; None where it has no sample. Where there is no power, `reason` says why.
    """

    power_samples: tuple[tuple[float, float], ...] = ()
    counter_edges: tuple[tuple[float, float], ...] = ()
    clock_samples_hz: tuple[float, ...] = ()
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    utilization: float | None = None
    reason: str | None = None


class Meter(Protocol):
    """Records a board's power in the background and hands out windows of it."""

    name: str

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return what was seen from `start_s` to `end_s` (`time.monotonic()` seconds).

        `lag_s` is how late the meter's samples show what the device did; the window is cut that
        much later and the times in the reading are corrected by it.
        """

    def close(self) -> None:
        """Stop recording; the meter cannot be used afterwards."""


class NoMeter:
    """Stands where nothing can be measured: every window is empty and says why."""

    name = "none"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return an empty reading that carries the reason."""
        return Reading(reason=self.reason)

    def close(self) -> None:
        """Do nothing."""


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
