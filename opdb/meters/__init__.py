"""Meters: what a board draws over a window of time, through one narrow protocol.

A meter records all the time and is asked afterwards for a window, so the thread that issues the
work never waits for a reading. Times are seconds of `time.monotonic()`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from opdb.units import MICRO

LIMIT_EXCEEDED = 2.0
"""No board draws so many times its power limit: single samples of an H200 reach 1.4 times it."""

MOST_W = 100_000.0
"""More than a poll of RAPL that is held up can make of what processors draw; what bounds a power
where no limit is known."""

CONTRADICTION = 2.0
"""Samples and counter that are so many times apart cannot both be right, and which of them is wrong
is not to be told. In the published stretches 1.16 is the most; where a load comes or goes in a
window, samples that are late are up to 1.6 times apart from the counter."""

EDGES_COMPARED = 4
"""Updates of the counter in a window before its mean power is held against the samples': between
two, a poll that is held up makes much of little."""


@dataclass(frozen=True)
class Reading:
    """The readings of a meter in one window.

    `power_samples` are (seconds since the window began, watts). `counter_edges` are (seconds since
    the window began, joules since the first edge), one for each update of an energy counter that
    fell into the window. `throttle_reasons` are the driver's own words for why the clock was held
    back. Where there is no power, `reason` says why.
    """

    power_samples: tuple[tuple[float, float], ...] = ()
    counter_edges: tuple[tuple[float, float], ...] = ()
    clock_samples_hz: tuple[float, ...] = ()
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    reason: str | None = None


class Meter(Protocol):
    """Records a board's power in the background and hands out windows of it."""

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return what was seen from `start_s` to `end_s` (`time.monotonic()` seconds).

        `lag_s` is how late the meter's samples show what the device did; the window is cut that
        much later and the times in the reading are corrected by it.
        """

    def close(self) -> None: ...


class NoMeter:
    def __init__(self, reason: str) -> None:
        self.reason = reason

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        return Reading(reason=self.reason)

    def close(self) -> None: ...


class TrustedMeter:
    """Hands out another meter's windows without what is not trusted there.

    `failed` says why, by what failed: "samples" (the driver's ring) or "counter". A window that no
    board of `limit_w` can have drawn has no power at all. What is then left without any power says
    so in its reason.
    """

    def __init__(
        self, meter: Meter, failed: Mapping[str, str], limit_w: float | None = None
    ) -> None:
        self._meter, self._failed = meter, failed
        self._most_w = MOST_W if limit_w is None else LIMIT_EXCEEDED * limit_w

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        reading = self._meter.window(start_s, end_s, lag_s=lag_s)
        if "counter" in self._failed:
            reading = replace(reading, counter_edges=())
        if "samples" in self._failed:
            reading = replace(reading, power_samples=())
        if (wrong := implausible(reading, self._most_w)) is not None:
            return replace(reading, power_samples=(), counter_edges=(), reason=wrong)
        if reading.power_samples or len(reading.counter_edges) > 1:
            return replace(reading, reason=None)
        reasons = [f"{name} failed a test: {why}" for name, why in self._failed.items()]
        return replace(reading, reason="; ".join([*reasons, *filter(None, [reading.reason])]))

    def close(self) -> None:
        self._meter.close()


def implausible(reading: Reading, most_w: float) -> str | None:
    """Say why the power of a window cannot be true; None where it may be.

    `most_w` is more than the board can draw (watts).
    """
    watts = [w for _, w in reading.power_samples]
    edges = reading.counter_edges
    if (odd := next((w for w in watts if not 0 <= w <= most_w), None)) is not None:
        return f"the meter reads {odd:.6g} W, which this board cannot draw"
    if watts and not any(watts):
        return "the meter reads 0 W all the time"
    if (back_j := next((a - b for (_, a), (_, b) in pairwise(edges) if b < a), None)) is not None:
        return f"the energy counter went back by {back_j:.6g} J"
    if len(edges) < (EDGES_COMPARED if watts else 2):
        return None
    counter_w = (edges[-1][1] - edges[0][1]) / (edges[-1][0] - edges[0][0])
    if not counter_w <= most_w:
        return f"the energy counter reads {counter_w:.6g} W, which this board cannot draw"
    mean_w = math.fsum(watts) / len(watts) if watts else counter_w
    apart = max(mean_w, counter_w) > CONTRADICTION * min(mean_w, counter_w)
    if apart:
        return f"the meters contradict each other: samples {mean_w:.6g} W, counter {counter_w:.6g}"
    return None


# Energy of the processor packages through Linux powercap (RAPL).

POWERCAP = Path("/sys/class/powercap")
POLL_PERIOD_S = 0.02
HISTORY_S = 120.0


def unavailable_reason(root: Path = POWERCAP) -> str | None:
    packages = _packages(root)
    if not packages:
        return f"no RAPL package under {root}"
    try:
        for package in packages:
            (package / "energy_uj").read_text()
    except OSError as error:
        return f"RAPL cannot be read: {error.strerror} ({error.filename}); it needs root"
    return None


def _packages(root: Path) -> list[Path]:
    """Return the package domains (`intel-rapl:0`), not their parts (`intel-rapl:0:0`)."""
    return sorted(p for p in root.glob("intel-rapl:*") if p.name.count(":") == 1)


class RaplMeter:
    """Power of all processor packages, from their energy counters, read every 20 ms."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._packages = _packages(root)
        self._ranges_uj = [int((p / "max_energy_range_uj").read_text()) for p in self._packages]
        self._last_uj = [self._read_uj(p) for p in self._packages]
        self._total_j = 0.0
        self._lost: str | None = None
        self._edges: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    @staticmethod
    def _read_uj(package: Path) -> int:
        return int((package / "energy_uj").read_text())

    def _record(self) -> None:
        while not self._stop.wait(POLL_PERIOD_S):
            try:
                self._poll()
            except (OSError, ValueError) as error:
                self._lost = f"RAPL can no longer be read: {error}"
                return

    def _poll(self) -> None:
        for i, package in enumerate(self._packages):
            now_uj = self._read_uj(package)
            step = now_uj - self._last_uj[i]
            if step < 0:  # the counter wrapped
                step += self._ranges_uj[i]
            self._last_uj[i] = now_uj
            self._total_j += step * MICRO
        now = time.monotonic()
        self._edges.append((now, self._total_j))
        while self._edges[0][0] < now - HISTORY_S:
            self._edges.popleft()

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        edges = [(t, j) for t, j in list(self._edges) if start_s <= t <= end_s]
        if len(edges) < 2:
            few = f"fewer than two RAPL readings in {end_s - start_s:.3f} s"
            return Reading(reason=self._lost or few)
        power = [
            ((t0 + t1) / 2 - start_s, (j1 - j0) / (t1 - t0))
            for (t0, j0), (t1, j1) in pairwise(edges)
        ]
        return Reading(
            power_samples=tuple(power),
            counter_edges=tuple((t - start_s, j - edges[0][1]) for t, j in edges),
        )

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
