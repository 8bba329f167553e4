"""The calibration with which a campaign begins: base power, the meter's lag and periods.

It is quick and made every time; whether a board's meters can be trusted at all is tested once, in
`board`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from opdb.bench.loads import square_matmul
from opdb.bench.session import Session, new_id, now, seconds_since
from opdb.bench.transitions import transition_time_s
from opdb.derive.rejection import FOREIGN_PROCESS
from opdb.derive.traces import FULL_CLOCK_SHARE, counter_power_w, crossing_s, period_s
from opdb.records import Calibration, Campaign, positive_interval
from opdb.store import Store

WARM_UP_S = 4.0
WARM_S = 1.0
"""A load that raises clocks before base power is measured."""

RECENT_S = 300.0
"""For so long the meter's lag and periods and the transitions found by a campaign count for the
next campaigns on its board, which measure base power alone."""

COOL_S = 5.0
"""Idle after the long load of a whole calibration, so that base power is measured on a board about
as warm as between visits: right after it, H100s drew up to 7 of 130 W more."""

BASE_SETTLE_S = 0.4
BASE_WINDOW_S = 1.6
STEP_S = 0.25
STEP_CYCLES = 6
CONTAINER_ROUNDS = 200
LOAD_SIZE = 4096
"""Its product takes about 1 ms in float32 and stays below the power limit."""


def recent_campaign(session: Session, store: Store) -> Campaign | None:
    """Return a campaign that began a moment ago as this one and calibrated everything, if any.

    That is on the same board and host, in the same environment, with no other process beside it.
    """
    if not session.on_gpu:
        return None
    campaign = session.campaign
    for earlier in reversed(store.campaigns(board=campaign.board.uuid)):
        found = earlier.calibration
        whole = None not in (found.sample_lag_s, found.transition_s) and not found.notes
        same = (earlier.host, earlier.environment) == (campaign.host, campaign.environment)
        if whole and same and 0 <= seconds_since(earlier.started_at) <= RECENT_S:
            return earlier
    return None


def calibrate(session: Session, recent: Campaign | None = None) -> Calibration:
    """Measure what the campaign's numbers rest on; 17 s on a GPU, 2 s elsewhere.

    Where a `recent` campaign is given, base power alone is measured, in 3 s; a note says whose the
    rest is.
    """
    if recent is not None:
        load = square_matmul(LOAD_SIZE, torch.float32, session.platform.torch_device)
        base_w, interval, notes = _base_power(session.calibrated(recent.calibration), load)
        return replace(
            recent.calibration,
            base_power_w=base_w,
            base_power_interval_w=interval,
            notes=(*notes, f"all but base power is of campaign {recent.id}"),
        )
    container_s = container_time_s()
    if not session.on_gpu:
        base_w, interval, notes = _base_power(session)
        return Calibration(base_w, interval, container_s, None, None, None, notes)
    from opdb.meters.nvml import foreign_processes

    load = square_matmul(LOAD_SIZE, torch.float32, session.platform.torch_device)
    _run_for(load, WARM_UP_S)
    lag_s, periods = _lag_and_periods(session, load)
    time.sleep(COOL_S)
    base_w, interval, notes = _base_power(session, load)
    notes += tuple(
        f"{FOREIGN_PROCESS}: {process}"
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
        transition_s=transition_time_s(session),
    )


def with_base_power_anew(session: Session, store: Store) -> Session:
    """Return the session in a further campaign, saved, whose base power is measured now (3 s).

    All else that is calibrated stays as it is.
    """
    campaign = replace(session.campaign, id=new_id(), started_at=now())
    anew = replace(session, campaign=campaign, restores={})
    anew = anew.calibrated(calibrate(anew, session.campaign))
    store.save_campaign(anew.campaign)
    return anew


def _run_for(load: Callable[[], None], seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for _ in range(4):
            load()
        torch.cuda.synchronize()


def _interval(values: Sequence[float]) -> tuple[float, tuple[float, float]] | None:
    """Return mean and 95 % interval, the samples taken as correlated over ten of them."""
    if not values or statistics.fmean(values) <= 0:
        return None
    mean = statistics.fmean(values)
    width = 1.96 * statistics.pstdev(values) / max(1.0, len(values) / 10) ** 0.5
    return mean, positive_interval(mean, width / mean, width / mean)


def _base_power(
    session: Session, load: Callable[[], None] | None = None
) -> tuple[float | None, tuple[float, float] | None, tuple[str, ...]]:
    """Measure board power with a context open, nothing running; a `load` before raises clocks."""
    if load is not None:
        _run_for(load, WARM_S)
        time.sleep(BASE_SETTLE_S)
    start_s = time.monotonic()
    time.sleep(BASE_WINDOW_S)
    reading = session.meter.window(start_s, time.monotonic(), lag_s=session.lag_s)
    found = _interval([w for _, w in reading.power_samples])
    if found is None:  # the samples are not there, or not trusted
        counter_w = counter_power_w(reading.counter_edges)
        return counter_w, None, () if counter_w else (f"no base power: {reading.reason}",)
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
    samples = tuple((t + start_s, w) for t, w in reading.power_samples)
    if len(samples) < 2:
        return None, (None, None)
    low, high = min(w for _, w in samples), max(w for _, w in samples)
    crossings = [crossing_s(samples, rise, (low + high) / 2, STEP_S) for rise in rises]
    late = [c - r for c, r in zip(crossings, rises, strict=True) if c is not None]
    return (
        max(0.0, statistics.median(late)) if late else None,
        (period_s(samples), period_s(reading.counter_edges)),
    )


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
