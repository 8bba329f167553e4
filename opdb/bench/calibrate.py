"""The calibration with which a campaign begins: base power, the meter's lag and periods.

It is quick and made every time; whether a board's meters can be trusted at all is tested once a
board, further down.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from opdb.bench.neighbours import among_neighbours
from opdb.bench.replay import (
    CudaClock,
    Rotation,
    capture,
    launched_kernels,
    mean_time_s,
    prepare,
    warm_up,
)
from opdb.bench.session import Session, new_id, now, seconds_since
from opdb.bench.visit import SETTLE_S
from opdb.derive.calibration import (
    BoardRecord,
    Wave,
    counter_power_w,
    crossing_s,
    distrusted,
    facts_of,
    period_s,
    tests_of,
)
from opdb.derive.costs import FULL_CLOCK_SHARE, times_among_neighbours_s
from opdb.errors import CannotMeasureError, said_by
from opdb.harvest.passes import record
from opdb.meters import TrustedMeter
from opdb.models import LoadedModel
from opdb.operators import build
from opdb.records import BoardCalibration, Calibration, Campaign, Trace, positive_interval
from opdb.store import Store

if TYPE_CHECKING:
    from opdb.meters.nvml import NvmlMeter


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
    tiny_kernel_s = session.launching.tiny_kernel_s if session.launching else None
    if recent is not None:
        load = square_matmul(LOAD_SIZE, torch.float32, session.platform.torch_device)
        base_w, interval, notes = _base_power(session.calibrated(recent.calibration), load)
        return replace(
            recent.calibration,
            base_power_w=base_w,
            base_power_interval_w=interval,
            notes=(*notes, f"all but base power is of campaign {recent.id}"),
            tiny_kernel_s=tiny_kernel_s,
        )
    container_s = container_time_s()
    if not session.on_gpu:
        base_w, interval, notes = _base_power(session)
        return Calibration(base_w, interval, container_s, None, None, None, notes)
    load = square_matmul(LOAD_SIZE, torch.float32, session.platform.torch_device)
    _run_for(load, WARM_UP_S)
    lag_s, periods = _lag_and_periods(session, load)
    time.sleep(COOL_S)
    base_w, interval, notes = _base_power(session, load)
    notes += session.foreign()
    with session.settled():
        transition_s = transition_time_s(session)
    return Calibration(
        base_power_w=base_w,
        base_power_interval_w=interval,
        container_time_s=container_s,
        sample_period_s=periods[0],
        sample_lag_s=lag_s,
        counter_period_s=periods[1],
        notes=notes,
        transition_s=transition_s,
        tiny_kernel_s=tiny_kernel_s,
    )


def with_base_power_anew(session: Session, store: Store) -> Session:
    """Return the session in a further campaign, saved, whose base power is measured now (3 s)."""
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


# A board's own calibration: its meters put to the test, and what it reaches at most.
#
# Made once for each board, driver and power limit, and stored. Here loads are run and recorded;
# `opdb.derive.calibration` says what the record means.

BOARD_WARM_UP_S = 3.0
SETTLE_LOAD_S = 0.5
STEADY_S = 4.0
STEP_PERIOD_S = 0.5
BOARD_STEP_CYCLES = 8
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
    """
    if not session.on_gpu:
        return None
    known = stored_calibration(session, store)
    if known is not None and not again:
        return known
    name = session.platform.device.name
    tell(f"testing the meters of {name} ({session.platform.board.uuid}), about a minute")
    made = calibrate_board(session)
    store.save_board(session.platform.device, session.platform.board)
    store.save_board_calibration(made)
    return made


def stored_calibration(session: Session, store: Store) -> BoardCalibration | None:
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


def calibrate_board(session: Session) -> BoardCalibration:
    platform = session.platform
    measured_at, began_s = now(), time.monotonic()
    try:
        record = _Recording(session).record()
    except RuntimeError as error:
        session.check_alive()
        raise CannotMeasureError(
            f"the meters of {platform.board.uuid} cannot be tested: {said_by(error)}; free the "
            "GPU for a minute and try again"
        ) from error
    facts, notes = facts_of(record, platform.device)
    notes += session.foreign()
    return BoardCalibration(
        id=new_id(),
        board=platform.board,
        driver=platform.environment["driver"],
        power_limit_w=platform.device.power_limit_w,
        measured_at=measured_at,
        environment=platform.environment,
        cost_s=time.monotonic() - began_s,
        facts=facts,
        tests=tests_of(record, SETTLE_S),
        notes=tuple(notes),
    )


class _Busy:
    def __init__(self, work: Callable[[], None], call_s: float) -> None:
        self.work, self.call_s = work, call_s
        self._batch = max(1, math.ceil(BATCH_S / call_s))
        self._depth = max(1, math.ceil(AHEAD_S / (self._batch * call_s)))
        self._clock = CudaClock()
        self._queued: deque[Any] = deque()

    def keep(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(self._batch):
                self.work()
            self._queued.append(self._clock.mark())
            if len(self._queued) > self._depth:
                self._clock.wait(self._queued.popleft())

    def end(self) -> None:
        while self._queued:
            self._clock.wait(self._queued.popleft())


class _Recording:
    def __init__(self, session: Session) -> None:
        # On a GPU the meter is NVML's; open_meter gives no other.
        self._meter: NvmlMeter = session.meter  # type: ignore[assignment]
        self._device = session.platform.torch_device
        self._l2_bytes = session.platform.device.l2_bytes
        self._clock_hz = session.platform.device.max_clock_hz or 1e9
        self._clock = CudaClock()

    def record(self) -> BoardRecord:
        try:
            return self._record()
        finally:
            torch.cuda.synchronize()

    def _record(self) -> BoardRecord:
        busy = self._timed(square_matmul(WORK_SIZE, torch.float32, self._device))
        busy.keep(BOARD_WARM_UP_S)
        steady = self._steady(busy)
        off = self._off()
        step = self._wave(busy, STEP_PERIOD_S, BOARD_STEP_CYCLES * STEP_PERIOD_S)
        squares = tuple(self._wave(busy, period_s, SQUARE_S) for period_s in SQUARE_PERIODS_S)
        busy.keep(SETTLE_LOAD_S)
        busy.end()
        time.sleep(IDLE_SETTLE_S)
        idle = self._idle()
        return BoardRecord(
            steady=steady,
            off=off,
            step=step,
            squares=squares,
            idle=idle,
            limit=self._limit(),
            rates={"copy_bytes_per_s": copy_rate(self._device), **matmul_rates(self._device)},
            passes=read_passes_s(self._device, self._l2_bytes) if self._l2_bytes else (),
        )

    def _timed(self, work: Callable[[], None], calls: int = 10) -> _Busy:
        work()
        return _Busy(work, mean_time_s(work, self._clock, calls))

    def _steady(self, busy: _Busy) -> Trace:
        busy.keep(SETTLE_LOAD_S)
        start_s = time.monotonic()
        busy.keep(STEADY_S)
        return self._meter.trace(start_s, time.monotonic())

    def _rest(self, seconds: float) -> None:
        """Let the device do next to nothing for so long: one thread that spins."""
        torch.cuda._sleep(int(seconds * self._clock_hz))

    def _off(self) -> Trace:
        torch.cuda.synchronize()
        busy = _Busy(lambda: self._rest(BATCH_S), BATCH_S)
        busy.keep(SETTLE_LOAD_S)
        start_s = time.monotonic()
        busy.keep(OFF_S)
        end_s = time.monotonic()
        busy.end()
        return self._meter.trace(start_s, end_s)

    def _wave(self, load: _Busy, period_s: float, seconds: float) -> Wave:
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

    def _limit(self) -> Trace:
        busy = self._timed(square_matmul(HEAVY_SIZE, torch.float16, self._device), calls=2)
        time.sleep(RECOVER_S)
        start_s = time.monotonic()
        busy.keep(LIMIT_S)
        busy.end()
        return self._meter.trace(start_s, time.monotonic())


# Loads of known work: matrix products, copies, reads; and how fast a board does them at most.

MATMUL_SIZE = 8192
MATMUL_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
REPEATS = 8
COPY_BYTES = 2**31
MEMORY_SHARE = 0.25

FIRST_SHARE = 1 / 16
LAST_SHARE = 2.0
GROWTH = 1.08
"""Read sizes: from and to these shares of the L2, each so much larger than the one before."""

ROWS = 2048
ROW_STEP_BYTES = ROWS * 16
"""Sizes are whole numbers of vectors for every row of the reduction that reads them."""

PASSES_S = 1.5e-3
SLOWEST_READ_BYTES_PER_S = 3e12
LAUNCH_S = 3e-6


def square_matmul(size: int, dtype: torch.dtype, device: str) -> Callable[[], None]:
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    out = torch.empty_like(a)

    def run() -> None:
        torch.mm(a, b, out=out)

    return run


def copy_rate(device: str) -> float:
    """Return the highest rate of a device-to-device copy (bytes/s), bytes read and written."""
    free, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, int(MEMORY_SHARE * free))
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _shortest_s(lambda: target.copy_(source))


def matmul_rates(device: str) -> dict[str, float | None]:
    """Return the highest rate of a matrix product (FLOP/s) by dtype; a multiply-add counts 2."""
    matmul, rates = torch.backends.cuda.matmul, {}
    before = matmul.allow_tf32
    for name, dtype in MATMUL_DTYPES.items():
        matmul.allow_tf32 = name == "tf32"
        rates[f"matmul_{name}_flops_per_s"] = _matmul_rate(dtype, device)
    matmul.allow_tf32 = before
    return rates


def _matmul_rate(dtype: torch.dtype, device: str) -> float | None:
    try:
        return 2 * MATMUL_SIZE**3 / _shortest_s(square_matmul(MATMUL_SIZE, dtype, device))
    except RuntimeError:  # a dtype that this GPU does not multiply
        return None


def _shortest_s(work: Callable[[], object]) -> float:
    clock = CudaClock()
    work()
    marks = [clock.mark()]
    for _ in range(REPEATS):
        work()
        marks.append(clock.mark())
    clock.wait(marks[-1])
    return min(clock.elapsed_s(a, b) for a, b in pairwise(marks))


def read_passes_s(device: str, l2_bytes: int) -> tuple[tuple[float, float], ...]:
    """Return (bytes, seconds a pass) of reading buffers over and over, from small to twice the L2.

    Every pass is one reduction kernel, and all passes over a buffer one CUDA graph.
    """
    largest = _rounded(LAST_SHARE * l2_bytes)
    buffer = torch.randn(largest // 4, device=device)
    sums = torch.empty(ROWS, device=device)
    steps = math.ceil(math.log(LAST_SHARE / FIRST_SHARE) / math.log(GROWTH))
    sizes = {_rounded(FIRST_SHARE * l2_bytes * GROWTH**step) for step in range(steps)} | {largest}
    return tuple((float(size), _pass_s(buffer, sums, size)) for size in sorted(sizes))


def _rounded(size: float) -> int:
    return ROW_STEP_BYTES * max(1, round(size / ROW_STEP_BYTES))


def _pass_s(buffer: torch.Tensor, sums: torch.Tensor, size: int) -> float:
    rows = buffer[: size // 4].view(ROWS, -1)
    passes = math.ceil(PASSES_S / (size / SLOWEST_READ_BYTES_PER_S + LAUNCH_S))

    def read() -> None:
        torch.sum(rows, dim=1, out=sums)

    warm_up(read, 1)
    graph = capture(read, passes)
    return _shortest_s(graph.replay) / passes


# The extra time of a kernel where different operators follow one another.
#
# Operators are timed one at a time, among the same two neighbours. In a model each follows another
# operator, and on an H200 that adds about 0.1 µs to every kernel: most of it is code that is no
# longer held (`opdb.bench.neighbours`). A small network of blocks that many models are made of is
# run as one graph, and each of its operators by itself: what the sum lacks, for each different
# kernel of a call, is added in predictions to calls whose code was not measured. No model is in it.

IMAGE = (1, 256, 14, 14)
REPLAYS = 40
WARM_UP_REPLAYS = 10
CALL_S = 3e-6


class Blocks(nn.Module):
    """A bottleneck, an inverted residual and a transformer's feed-forward part, on one image."""

    def __init__(self, channels: int = 256, wide: int = 96) -> None:
        super().__init__()
        narrow = channels // 4
        self.bottleneck = nn.Sequential(
            nn.Conv2d(channels, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, 3, padding=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.entry = nn.Conv2d(channels, wide, 1, bias=False)
        self.inverted = nn.Sequential(
            nn.Conv2d(wide, 4 * wide, 1, bias=False),
            nn.BatchNorm2d(4 * wide),
            nn.Hardswish(inplace=True),
            nn.Conv2d(4 * wide, 4 * wide, 5, padding=2, groups=4 * wide, bias=False),
            nn.BatchNorm2d(4 * wide),
            nn.Hardswish(inplace=True),
            nn.Conv2d(4 * wide, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.norm = nn.LayerNorm(wide)
        self.widen, self.gelu = nn.Linear(wide, 4 * wide), nn.GELU()
        self.narrow = nn.Linear(4 * wide, wide)

    def forward(self, image: Tensor) -> Tensor:
        """Take (1, channels, h, w) to (1, h·w, wide)."""
        x = torch.relu(self.bottleneck(image) + image)
        x = self.entry(x)
        x = self.inverted(x) + x
        tokens: Tensor = x.flatten(2).transpose(1, 2).contiguous()
        fed: Tensor = self.narrow(self.gelu(self.widen(self.norm(tokens))))
        return tokens + fed


def transition_time_s(session: Session) -> float | None:
    """Return what each kernel takes longer among other operators; None where none can be listed."""
    device = session.platform.torch_device
    network = Blocks().to(device).eval()
    image = torch.randn(IMAGE, device=device)
    inputs = {"args": [{"shape": list(IMAGE), "dtype": "float32"}], "kwargs": {}}
    recorder = record(LoadedModel("blocks", "opdb", "", network, (image,), {}, inputs, 1))

    def step() -> Any:
        with torch.no_grad():
            return network(image)

    kernels = launched_kernels(step)
    if not kernels:
        return None
    warm_up(step)
    whole_s = _time_s(capture(step, 1).replay)
    l2_bytes = session.platform.device.l2_bytes or 0
    parts_s, different = 0.0, 0
    for call, count in Counter(recorder.calls).items():
        built = build(call.configuration, form=call.form, device=device)
        if launched := launched_kernels(built):
            parts_s += count * _call_time_s(built, l2_bytes)
            different += count * len(launched)
    return (whole_s - parts_s) / different


def _call_time_s(call: Any, l2_bytes: int) -> float:
    rotation = Rotation(call, l2_bytes=l2_bytes, cold=False)
    seen = among_neighbours(rotation, CALL_S, l2_bytes)
    if seen is not None:
        return statistics.median(times_among_neighbours_s(seen))
    replay = prepare(rotation, device_type="cuda")
    return _time_s(replay.issue) / replay.calls


def _time_s(issue: Callable[[], None]) -> float:
    for _ in range(WARM_UP_REPLAYS):
        issue()
    return mean_time_s(issue, CudaClock(), REPLAYS)
