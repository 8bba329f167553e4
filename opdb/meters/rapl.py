"""Energy of the processor packages through Linux powercap (RAPL)."""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import pairwise
from pathlib import Path

from opdb.meters import Reading
from opdb.units import MICRO

POWERCAP = Path("/sys/class/powercap")
POLL_PERIOD_S = 0.02
HISTORY_S = 120.0


def unavailable_reason(root: Path = POWERCAP) -> str | None:
    """Return why RAPL cannot be read here, or None where it can."""
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
