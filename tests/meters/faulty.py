"""Meters that go wrong around a recorded trace of a real board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opdb.meters import Meter, Reading

Fault = Callable[[Reading], Reading]


def _powers(change: Callable[[float], float]) -> Fault:
    """Return what changes each power sample (watts)."""
    return lambda reading: replace(
        reading, power_samples=tuple((t, change(w)) for t, w in reading.power_samples)
    )


def _jumps_back(reading: Reading) -> Reading:
    """Let the counter begin anew half way, as after a reset of the driver."""
    edges = reading.counter_edges
    half = len(edges) // 2
    again = tuple((t, j - edges[half][1]) for t, j in edges[half:])
    return replace(reading, counter_edges=edges[:half] + again)


def _runs_away(reading: Reading) -> Reading:
    return replace(reading, counter_edges=tuple((t, 1e4 * j) for t, j in reading.counter_edges))


FAULTS: dict[str, tuple[Fault, str]] = {
    "reads zero": (_powers(lambda w: 0.0), "the meter reads 0 W all the time"),
    "reads a million watts": (_powers(lambda w: 1e6), "the meter reads 1e+06 W"),
    "reads less than nothing": (_powers(lambda w: -w), "the meter reads -"),
    "repeats an old value": (_powers(lambda w: 120.0), "the meters contradict each other"),
    "jumps back": (_jumps_back, "the energy counter went back by"),
    "runs away": (_runs_away, "the energy counter reads "),
    "stops": (
        lambda reading: replace(
            reading, power_samples=(), counter_edges=(), reason="no power sample in the window"
        ),
        "no power sample in the window",
    ),
}
"""What a meter may do, and how its reason begins."""


class FaultyMeter:
    """Hands out another meter's windows with a fault in each."""

    def __init__(self, meter: Meter, fault: Fault) -> None:
        self._meter, self._fault = meter, fault

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return the window as it is after the fault."""
        return self._fault(self._meter.window(start_s, end_s, lag_s=lag_s))

    def close(self) -> None:
        """Close the meter behind."""
        self._meter.close()
