"""A board's own calibration: its meters put to the test, and what it reaches at most.

Made once for each board, driver and power limit, and stored; what a campaign finds out anew each
time (base power, lag) is in `calibrate`. Here loads are run and recorded; `derive.meter_tests`
and `derive.board_facts` say what the record means.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from opdb.bench.loads import copy_rate, matmul_rates, read_passes_s, square_matmul
from opdb.bench.replay import CudaClock, mean_time_s
from opdb.bench.session import Session, new_id, now
from opdb.bench.visit import SETTLE_S
from opdb.derive.board_facts import facts_of
from opdb.derive.meter_tests import distrusted, tests_of
from opdb.derive.rejection import FOREIGN_PROCESS
from opdb.derive.traces import BoardRecord, Ratings, Wave
from opdb.errors import CannotMeasureError, said_by
from opdb.meters import TrustedMeter
from opdb.records import BoardCalibration, Trace
from opdb.store import Store

if TYPE_CHECKING:
    from opdb.meters.nvml import NvmlMeter, Polling

WARM_UP_S = 3.0
SETTLE_LOAD_S = 0.5
EDGE_S = 0.45
"""The counter is read as usual for so long at both ends of a steady load, to see its edges."""

STEADY_S = 3.0
STEP_PERIOD_S = 0.5
STEP_CYCLES = 8
SQUARE_PERIODS_S = (0.010, 0.020, 0.025, 0.050, 0.100, 0.130)
"""Near the driver's ticks (20 and 100 ms), and near the 25 of each 100 ms in which instant power is
said to look (arXiv 2312.02741)."""

SQUARE_S = 1.6
OFF_S = 1.6
IDLE_SETTLE_S = 0.5
IDLE_S = 2.4
LIMIT_S = 2.0
RECOVER_S = 1.0
WORK_SIZE = 2048
HEAVY_SIZE = 8192
AHEAD_S = 0.06
"""Work is queued so far ahead of the device that the host may do something in between."""

BATCH_S = 0.015


def ensure_board_calibration(
    session: Session,
    store: Store,
    *,
    again: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> BoardCalibration | None:
    """Return the stored calibration of the session's board; make and save one where there is none.

    It is that of the same board, driver and power limit; with `again` a new one is made. None where
    there is no GPU whose meters could be tested.

    Raises:
        CannotMeasureError: the device or its recorder stopped answering.
        DatabaseError: the calibration cannot be saved.
    """
    if not session.on_gpu:
        return None
    known = stored_calibration(session, store)
    if known is not None and not again:
        return known
    name = session.platform.device.name
    tell(f"testing the meters of {name} ({session.platform.board.uuid}), about a minute")
    made = calibrate_board(session, tell)
    store.save_board(session.platform.device, session.platform.board)
    store.save_board_calibration(made)
    return made


def stored_calibration(session: Session, store: Store) -> BoardCalibration | None:
    """Return the latest calibration of this board under this driver and power limit, if any."""
    platform = session.platform
    wanted = platform.environment["driver"], platform.device.power_limit_w
    found = [
        calibration
        for calibration in store.board_calibrations(platform.board.uuid)
        if (calibration.driver, calibration.power_limit_w) == wanted
    ]
    return found[-1] if found else None


def trusting(session: Session, calibration: BoardCalibration | None) -> Session:
    """Return the session with a meter that leaves out what failed the board's tests.

    What no board could have drawn it leaves out, too.
    """
    failed = distrusted(calibration.tests) if calibration else {}
    limit_w = session.platform.device.power_limit_w
    return replace(session, meter=TrustedMeter(session.meter, failed, limit_w))


def calibrate_board(session: Session, tell: Callable[[str], None]) -> BoardCalibration:
    """Run the loads, record what the meters show, and judge it; about a minute.

    Raises:
        CannotMeasureError: the device or its recorder stopped answering, or a load cannot be run.
    """
    from opdb.meters.nvml import foreign_processes

    platform = session.platform
    measured_at, began_s = now(), time.monotonic()
    try:
        record = _Recording(session, tell).record()
    except RuntimeError as error:
        session.check_alive()
        raise CannotMeasureError(
            f"the meters of {platform.board.uuid} cannot be tested: {said_by(error)}; free the "
            "GPU for a minute and try again"
        ) from error
    ratings = Ratings(platform.device.max_clock_hz, platform.device.l2_bytes, SETTLE_S)
    facts, notes = facts_of(record, ratings)
    notes += [f"{FOREIGN_PROCESS}: {process}" for process in foreign_processes(platform.board.uuid)]
    return BoardCalibration(
        id=new_id(),
        board=platform.board,
        driver=platform.environment["driver"],
        power_limit_w=platform.device.power_limit_w,
        measured_at=measured_at,
        environment=platform.environment,
        cost_s=time.monotonic() - began_s,
        facts=facts,
        tests=tests_of(record, ratings),
        notes=tuple(notes),
    )


class _Busy:
    """Keeps the device busy with one piece of work, queued ahead."""

    def __init__(self, work: Callable[[], None], call_s: float) -> None:
        self._work = work
        self._batch = max(1, math.ceil(BATCH_S / call_s))
        self._depth = max(1, math.ceil(AHEAD_S / (self._batch * call_s)))
        self._clock = CudaClock()
        self._queued: deque[Any] = deque()

    def keep(self, seconds: float) -> None:
        """Keep the device busy for so long, and for a little after the return."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(self._batch):
                self._work()
            self._queued.append(self._clock.mark())
            if len(self._queued) > self._depth:
                self._clock.wait(self._queued.popleft())

    def end(self) -> None:
        """Let the queue run empty."""
        while self._queued:
            self._clock.wait(self._queued.popleft())


@dataclass(frozen=True)
class _Load:
    """A piece of work and what one call of it takes."""

    work: Callable[[], None]
    call_s: float


class _Recording:
    """One run through all loads of a board's calibration."""

    def __init__(self, session: Session, tell: Callable[[str], None]) -> None:
        # On a GPU the meter is NVML's; open_meter gives no other.
        self._meter: NvmlMeter = session.meter  # type: ignore[assignment]
        self._tell = tell
        self._device = session.platform.torch_device
        self._l2_bytes = session.platform.device.l2_bytes
        self._clock_hz = session.platform.device.max_clock_hz or 1e9
        self._clock = CudaClock()

    def record(self) -> BoardRecord:
        """Run everything, the counter read as usual again at the end."""
        try:
            return self._record()
        finally:
            torch.cuda.synchronize()
            self._meter.watch("usual")

    def _record(self) -> BoardRecord:
        load = self._timed(square_matmul(WORK_SIZE, torch.float32, self._device))
        self._tell("a steady load, the counter read as usual, not at all, back to back")
        busy = _Busy(load.work, load.call_s)
        busy.keep(WARM_UP_S)
        polled: tuple[Polling, ...] = ("usual", "none", "fast")
        steady: dict[str, Trace] = {how: self._steady(busy, how) for how in polled}
        self._meter.watch("usual", instant=True)
        off = self._off()
        self._tell("a load switched on and off, slowly and near the meters' ticks")
        step = self._wave(load, STEP_PERIOD_S, STEP_CYCLES * STEP_PERIOD_S)
        squares = tuple(self._wave(load, period_s, SQUARE_S) for period_s in SQUARE_PERIODS_S)
        busy.keep(SETTLE_LOAD_S)
        busy.end()
        self._tell("the board at rest, then at its power limit")
        time.sleep(IDLE_SETTLE_S)
        idle = self._idle()
        limit, limit_end_s = self._limit()
        self._tell("copies, matrix products, reads of growing size")
        return BoardRecord(
            steady=steady,
            off=off,
            step=step,
            squares=squares,
            idle=idle,
            limit=limit,
            limit_end_s=limit_end_s,
            rates={"copy_bytes_per_s": copy_rate(self._device), **matmul_rates(self._device)},
            passes=read_passes_s(self._device, self._l2_bytes) if self._l2_bytes else (),
        )

    def _timed(self, work: Callable[[], None], calls: int = 10) -> _Load:
        """Time a piece of work after a first call of it."""
        work()
        return _Load(work, mean_time_s(work, self._clock, calls))

    def _steady(self, busy: _Busy, polling: Polling) -> Trace:
        """Trace a steady load, the counter polled this way between the two ends."""
        self._meter.watch("usual", instant=True)
        busy.keep(SETTLE_LOAD_S)
        start_s = time.monotonic()
        busy.keep(EDGE_S)
        self._meter.watch(polling, instant=True)
        busy.keep(STEADY_S)
        self._meter.watch("usual", instant=True)
        busy.keep(EDGE_S)
        return self._meter.trace(start_s, time.monotonic())

    def _rest(self, seconds: float) -> None:
        """Let the device do next to nothing for so long: one thread that spins."""
        torch.cuda._sleep(int(seconds * self._clock_hz))

    def _off(self) -> Trace:
        """Trace what runs between the loads of a wave."""
        torch.cuda.synchronize()
        busy = _Busy(lambda: self._rest(BATCH_S), BATCH_S)
        busy.keep(SETTLE_LOAD_S)
        start_s = time.monotonic()
        busy.keep(OFF_S)
        end_s = time.monotonic()
        busy.end()
        return self._meter.trace(start_s, end_s)

    def _wave(self, load: _Load, period_s: float, seconds: float) -> Wave:
        """Trace a load that is on for half of every period, timed by the device itself."""
        calls = max(1, round(period_s / 2 / load.call_s))
        ahead = max(1, math.ceil(AHEAD_S / period_s))
        torch.cuda.synchronize()
        start_s = time.monotonic()  # before the mark: no load lies outside the trace
        first = self._clock.mark()
        marks: list[tuple[Any, Any]] = []
        while time.monotonic() - start_s < seconds:
            self._rest(period_s / 2)
            on = self._clock.mark()
            for _ in range(calls):
                load.work()
            marks.append((on, self._clock.mark()))
            if len(marks) > ahead:
                self._clock.wait(marks[-1 - ahead][1])
        self._clock.wait(marks[-1][1])
        end_s = time.monotonic()
        intervals = tuple(
            (self._clock.elapsed_s(first, on), self._clock.elapsed_s(first, off))
            for on, off in marks
        )
        return Wave(period_s, intervals, self._meter.trace(start_s, end_s))

    def _idle(self) -> Trace:
        start_s = time.monotonic()
        time.sleep(IDLE_S)
        return self._meter.trace(start_s, time.monotonic())

    def _limit(self) -> tuple[Trace, float]:
        """Trace a load that reaches the power limit from its start, and the time after it."""
        load = self._timed(square_matmul(HEAVY_SIZE, torch.float16, self._device), calls=2)
        busy = _Busy(load.work, load.call_s)
        time.sleep(RECOVER_S)
        start_s = time.monotonic()
        busy.keep(LIMIT_S)
        busy.end()
        end_s = time.monotonic()
        time.sleep(RECOVER_S)
        return self._meter.trace(start_s, time.monotonic()), end_s - start_s
