"""Read loads of known duty in two ways: every 100 ms over the whole window, and as opdb does.

`python -m benchmarks.aiconfigurator` runs this. A load whose operator draws a known power is
switched on and off. Known is the power of the load when it runs without a pause, by the driver's
energy counter, which neither method reads. Each wave is then read as AIConfigurator's collector
does (`collector/helper.py`, read at 006afd7: the mean of `nvmlDeviceGetPowerUsage`, asked for every
100 ms from the first replay to the last), and as an opdb visit does (the driver's ring of power
samples over the same window, pauses taken out by the share of time in which the device was busy,
at base power). Printed is what each makes of the energy of one call, over what is known.

A *wave* alternates bursts and pauses. A *burst* is one stretch of work after a second of rest, as
a collector meets it that measures one operator after another; opdb's visit settles for 60 ms in it
and reads the rest.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from opdb.bench.platform import Platform, open_meter
from opdb.bench.replay import Clock, CudaClock, capture, warm_up
from opdb.bench.stretch import Timing, observe
from opdb.bench.visit import SETTLE_S
from opdb.derive.costs import stretch_power_w
from opdb.derive.statistics import slope
from opdb.errors import CannotMeasureError
from opdb.meters import Meter
from opdb.records import Calibration, Stretch
from opdb.units import MILLI

POLL_S = 0.1
"""How often AIConfigurator's collector asks for the power."""

STEADY_S = 3.0
WAVE_S = 2.0
REST_S = 1.0
BURST_S = 0.1
STEP_S = 4e-3
"""How much work is enqueued at once where there are no pauses."""

RISE_S = 0.5
"""How long a load runs before its power is taken for steady."""

DUTIES = (1.0, 0.5, 0.2)
BURSTS_S = (0.1, 0.3, 1.0)
"""How long single bursts last. The collector aims at 0.3 s for calls below 0.1 ms, else 1 s."""

WEIGHTS = 24
"""Matrices that a replay of products rotates over, so that each is read from memory."""


@dataclass(frozen=True)
class Wave:
    """One load switched on and off, read both ways. Powers are means in watts.

    `duty` is the share of the window in which the device was busy, `burst_s` how long a burst
    lasted. `known_w` is the load's power without pauses; `polled_w` the mean of `polls` readings;
    `opdb_w` what opdb takes for the load's power while it is busy. Ratios are over `known_w`, and
    so those of a call's energy, whose time is the same. `expected` is the ratio of a mean over
    busy and idle time.
    """

    load: str
    form: str
    burst_s: float
    duty: float
    known_w: float
    base_w: float
    polls: int
    polled_w: float | None
    opdb_w: float | None
    expected: float
    polled_ratio: float | None
    opdb_ratio: float | None


def busy_power_w(power_w: float | None, base_w: float, busy_share: float) -> float | None:
    """Return the power of the busy time (W), its pauses at base power; None without a power."""
    return None if power_w is None else base_w + (power_w - base_w) / busy_share


def expected_ratio(duty: float, known_w: float, base_w: float) -> float:
    """Return a window's mean power over that of its busy time."""
    return (duty * known_w + (1 - duty) * base_w) / known_w


def _ratio(power_w: float | None, known_w: float) -> float | None:
    return None if power_w is None else power_w / known_w


# loads


@dataclass(frozen=True)
class Load:
    """A captured stretch of `calls` equal calls that `issue` replays, each of `call_s` seconds."""

    name: str
    issue: Callable[[], object]
    calls: int
    replay_s: float


def loads(device: str) -> Iterator[Load]:
    """Yield loads that memory bounds, so that the power limit does not slow them down."""
    x = torch.randn(2**28, device=device)
    y = torch.empty_like(x)
    yield _captured("element by element, 1 GiB", [lambda: torch.mul(x, 0.5, out=y)] * 4)
    tokens = torch.randn(8, 4096, device=device, dtype=torch.bfloat16)
    weights = [torch.randn(4096, 6144, device=device, dtype=torch.bfloat16) for _ in range(WEIGHTS)]
    out = torch.empty(8, 6144, device=device, dtype=torch.bfloat16)

    def product(weight: torch.Tensor) -> Callable[[], Any]:
        return lambda: torch.mm(tokens, weight, out=out)

    yield _captured("8 x 4096 x 6144, bfloat16", [product(w) for w in weights] * 4)


def _captured(name: str, steps: Sequence[Callable[[], Any]]) -> Load:
    """Return a load that replays these steps as one CUDA graph."""

    def all_steps() -> None:
        for step in steps:
            step()

    warm_up(all_steps)
    graph = capture(all_steps, 1)
    clock = CudaClock()
    graph.replay()
    first = clock.mark()
    for _ in range(5):
        graph.replay()
    last = clock.mark()
    clock.wait(last)
    return Load(name, graph.replay, len(steps), clock.elapsed_s(first, last) / 5)


@dataclass(frozen=True)
class Burst:
    """What `issue` enqueues at once: a load's replays, of `calls` calls, for about `length_s`."""

    issue: Callable[[], None]
    calls: int
    length_s: float

    @classmethod
    def of(cls, load: Load, length_s: float) -> Burst:
        """Return the burst of whole replays, at least one, whose length is nearest."""
        replays = max(1, round(length_s / load.replay_s))

        def issue() -> None:
            for _ in range(replays):
                load.issue()

        return cls(issue, replays * load.calls, replays * load.replay_s)


# readings


@contextmanager
def polled(ask_w: Callable[[], float], period_s: float = POLL_S) -> Iterator[list[float]]:
    """Ask for the power at once and then every period until the block ends; yield the readings."""
    readings: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            readings.append(ask_w())
            over.wait(period_s)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield readings
    finally:
        over.set()
        asking.join()


def power_reader(uuid: str) -> Callable[[], float]:
    """Return what asks the driver for a board's power, in watts."""
    import pynvml

    from opdb.meters.nvml.binding import handle_of, start

    start()
    handle = handle_of(uuid)
    return lambda: float(pynvml.nvmlDeviceGetPowerUsage(handle)) * MILLI


@dataclass(frozen=True)
class Bench:
    """What waves are read with.

    `ask_w` asks the driver for the power (W), `base_w` is that of the idle board, `lag_s` how late
    the meter's samples are.
    """

    clock: Clock
    meter: Meter
    ask_w: Callable[[], float]
    base_w: float
    lag_s: float

    def known_w(self, load: Load, seconds: float = STEADY_S) -> float:
        """Return the power of a load without pauses, by the energy counter.

        Raises:
            CannotMeasureError: the board has no counter.
        """
        steady, timing = Burst.of(load, STEP_S), Timing(RISE_S, seconds, lag_s=self.lag_s)
        seen = observe(steady.issue, steady.calls, self.clock, self.meter, timing)
        power_w = slope(seen.reading.counter_edges)
        if power_w is None:
            raise CannotMeasureError("the energy counter did not move: nothing to compare with")
        return power_w

    def waves(self, load: Load, known_w: float) -> Iterator[Wave]:
        """Yield the readings of bursts with pauses in between, and of single bursts after rests."""
        for duty in DUTIES:
            burst = Burst.of(load, BURST_S if duty < 1 else STEP_S)
            gap_s = burst.length_s * (1 / duty - 1)
            settle_s = 0.0 if gap_s else SETTLE_S
            seen = self._read(burst, Timing(settle_s, WAVE_S, gap_s, self.lag_s))
            yield self._wave((load.name, "wave", burst.length_s), seen, known_w)
        for burst_s in BURSTS_S:
            time.sleep(REST_S)
            seen = self._read(
                Burst.of(load, STEP_S), Timing(SETTLE_S, burst_s - SETTLE_S, lag_s=self.lag_s)
            )
            yield self._wave((load.name, "burst", burst_s), seen, known_w)

    def _read(self, burst: Burst, timing: Timing) -> tuple[Stretch, list[float]]:
        """Read a load in both ways at once."""
        with polled(self.ask_w) as readings:
            seen = observe(burst.issue, burst.calls, self.clock, self.meter, timing)
        return seen.stretch, readings

    def _wave(
        self, named: tuple[str, str, float], seen: tuple[Stretch, list[float]], known_w: float
    ) -> Wave:
        stretch, readings = seen
        polled_w = statistics.fmean(readings) if readings else None
        opdb_w = busy_power_w(stretch_power_w(stretch), self.base_w, stretch.busy_share)
        return Wave(
            *named,
            duty=stretch.busy_share,
            known_w=known_w,
            base_w=self.base_w,
            polls=len(readings),
            polled_w=polled_w,
            opdb_w=opdb_w,
            expected=expected_ratio(stretch.busy_share, known_w, self.base_w),
            polled_ratio=_ratio(polled_w, known_w),
            opdb_ratio=_ratio(opdb_w, known_w),
        )


def measure(platform: Platform, calibration: Calibration) -> list[Wave]:
    """Read every load as waves and as single bursts; the calibration is that of the board.

    Raises:
        CannotMeasureError: the board has no energy counter, or its base power is not known.
    """
    if calibration.base_power_w is None:
        raise CannotMeasureError(f"no base power of {platform.board.uuid} is known")
    meter = open_meter(platform)
    try:
        bench = Bench(
            CudaClock(),
            meter,
            power_reader(platform.board.uuid),
            calibration.base_power_w,
            calibration.sample_lag_s or 0.0,
        )
        return [
            wave
            for load in loads(platform.torch_device)
            for wave in bench.waves(load, bench.known_w(load))
        ]
    finally:
        meter.close()


def show(found: Sequence[Wave]) -> None:
    """Print each wave: what both methods make of a call's energy, over what is known."""
    print(
        f"{'load':26} {'form':6} {'burst':>7} {'duty':>5} {'known':>8} "
        f"{'every 100 ms':>13} {'expected':>9} {'opdb':>7}"
    )
    for each in found:
        print(
            f"{each.load:26} {each.form:6} {1e3 * each.burst_s:4.0f} ms {each.duty:5.2f} "
            f"{each.known_w:6.1f} W {_shown(each.polled_ratio):>13} {each.expected:9.3f} "
            f"{_shown(each.opdb_ratio):>7}"
        )


def _shown(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"
