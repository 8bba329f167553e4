"""What a campaign finds out first: base power, the meter's lag and periods."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from opdb.bench.session import Session
from opdb.records import Calibration

WARM_UP_S = 4.0
BASE_SETTLE_S = 0.4
BASE_WINDOW_S = 1.6
STEP_S = 0.25
STEP_CYCLES = 6
CONTAINER_ROUNDS = 200
FULL_CLOCK_SHARE = 0.985


def calibrate(session: Session) -> Calibration:
    """Measure what the campaign's numbers rest on; 10 s on a GPU, 2 s elsewhere."""
    container_s = container_time_s()
    if not session.on_gpu:
        base_w, interval, notes = _base_power(session)
        return Calibration(base_w, interval, container_s, None, None, None, notes)
    from opdb.meters.nvml import foreign_processes

    load = _matmul_load(session.platform.torch_device)
    _run_for(load, WARM_UP_S)
    lag_s, periods = _lag_and_periods(session, load)
    _run_for(load, 0.5)
    time.sleep(BASE_SETTLE_S)
    base_w, interval, notes = _base_power(session)
    notes += tuple(
        f"another process is on the board: {process}"
        for process in foreign_processes(session.platform.board.uuid)
    )
    return Calibration(
        base_power_w=base_w,
        base_power_interval_w=interval,
        container_time_s=container_s,
        sample_period_s=periods[0],
        sample_lag_s=lag_s,
        counter_period_s=periods[1],
        notes=notes,
    )


def _matmul_load(device: str) -> Callable[[], None]:
    """Return a steady load of about 1 ms a call that stays below the power limit."""
    a = torch.randn(4096, 4096, device=device)
    b = torch.randn(4096, 4096, device=device)
    out = torch.empty_like(a)

    def run() -> None:
        torch.mm(a, b, out=out)

    return run


def _run_for(load: Callable[[], None], seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for _ in range(4):
            load()
        torch.cuda.synchronize()


def _interval(values: Sequence[float]) -> tuple[float, tuple[float, float]] | None:
    """Return mean and 95 % interval, the samples taken as correlated over ten of them."""
    if not values:
        return None
    mean = statistics.fmean(values)
    width = 1.96 * statistics.pstdev(values) / max(1.0, len(values) / 10) ** 0.5
    return mean, (mean - width, mean + width)


def _base_power(
    session: Session,
) -> tuple[float | None, tuple[float, float] | None, tuple[str, ...]]:
    """Measure board power with a context open, clocks up, nothing running."""
    start_s = time.monotonic()
    time.sleep(BASE_WINDOW_S)
    reading = session.meter.window(start_s, time.monotonic(), lag_s=session.lag_s)
    found = _interval([w for _, w in reading.power_samples])
    if found is None:
        return None, None, (f"no base power: {reading.reason}",)
    highest = session.platform.device.max_clock_hz
    notes: tuple[str, ...] = ()
    if highest and reading.clock_samples_hz:
        clock = min(reading.clock_samples_hz)
        if clock < FULL_CLOCK_SHARE * highest:
            notes = (f"the clock fell to {clock / 1e6:.0f} MHz while base power was measured",)
    return found[0], found[1], notes


def _lag_and_periods(
    session: Session, load: Callable[[], None]
) -> tuple[float | None, tuple[float | None, float | None]]:
    """Switch the load on and off; find how late the samples cross half way, and both periods."""
    start_s = time.monotonic()
    rises: list[float] = []
    for _ in range(STEP_CYCLES):
        time.sleep(STEP_S)
        rises.append(time.monotonic())
        _run_for(load, STEP_S)
    end_s = time.monotonic()
    reading = session.meter.window(start_s, end_s)
    samples = [(t + start_s, w) for t, w in reading.power_samples]
    if len(samples) < 2:
        return None, (None, None)
    low, high = min(w for _, w in samples), max(w for _, w in samples)
    crossings = [_crossing_s(samples, rise, (low + high) / 2) for rise in rises]
    late = [c - r for c, r in zip(crossings, rises, strict=True) if c is not None]
    return (
        max(0.0, statistics.median(late)) if late else None,
        (_period_s([t for t, _ in samples]), _period_s([t for t, _ in reading.counter_edges])),
    )


def _crossing_s(
    samples: Sequence[tuple[float, float]], after_s: float, level: float
) -> float | None:
    """Return when the samples first rise through `level` after a moment, by interpolation."""
    for (t0, w0), (t1, w1) in pairwise(samples):
        if t1 >= after_s and w0 < level <= w1 and t1 < after_s + STEP_S:
            return t0 + (t1 - t0) * (level - w0) / (w1 - w0)
    return None


def _period_s(times: Sequence[float]) -> float | None:
    steps = [b - a for a, b in pairwise(times)]
    return statistics.median(steps) if steps else None


def container_time_s() -> float:
    """Measure what a module call that is no operator costs the host (nn.Sequential).

    Between two timed calls other modules run, as they do in a model: in a tight loop the caches
    would be warm for this one call.
    """
    inner: nn.Module = nn.Identity()
    outer = nn.Sequential(inner)
    x = torch.zeros(1, 8, 4, 4)
    others = (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8).eval(), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    times = []
    with torch.no_grad():
        for _ in range(CONTAINER_ROUNDS):
            pair = []
            for module in (outer, inner):
                for other in others:
                    other(x)
                start = time.perf_counter()
                module(x)
                pair.append(time.perf_counter() - start)
            times.append(pair[0] - pair[1])
    return max(0.0, statistics.median(times))
