"""Compare the energy that opdb's meter and Zeus read over one and the same window.

Run it on a machine with an NVIDIA GPU that does nothing else, with Zeus installed:

    pip install zeus
    python -m benchmarks.opdb_vs_zeus

Three steady loads run for 60 s each: a float32 and a bfloat16 matrix product and an elementwise
product that memory bounds. A load that the power limit would slow down gets gaps. Zeus's window
and opdb's are the same stretch of the same run. Printed are the energy by Zeus, by opdb over the
whole window, and by the 0.22 s in its middle that an opdb visit would have taken, extended to the
window; `--seconds 30` makes the windows shorter, `--json FILE` writes all figures.

Both read one sensor, Zeus the driver's energy counter, opdb the driver's power samples: the
figures show agreement, not truth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks import new_file
from opdb.bench.platform import Platform, detect, open_meter
from opdb.bench.visit import WINDOW_S
from opdb.errors import CannotMeasureError, OpdbError
from opdb.meters import Meter, Reading
from opdb.meters.nvml.recorder import HISTORY_S

SECONDS = 60.0
SETTLE_S = 3.0
TRIAL_S = 1.2
BURST_S = 4e-3
"""How long the device works between two gaps."""

QUEUE_DEPTH = 3
DUTIES = (1.0, 0.8, 0.6, 0.4)
FULL_CLOCK_SHARE = 0.985
COUNTER_PERIOD_S = 0.1
"""How often the energy counter changes: an unaligned window is off by up to that much."""

NOTE = (
    "Zeus reads the driver's energy counter, opdb the driver's power samples: one sensor, so this "
    "shows agreement, not truth."
)


@dataclass(frozen=True)
class Comparison:
    """One load's window by both. Energies are gross, of the whole window.

    `visit_j` is the mean power of the window's middle 0.22 s times the window's length;
    `counter_j` is the slope of opdb's own counter edges times it. Differences are opdb / Zeus - 1.
    """

    load: str
    duty: float
    duration_s: float
    zeus_duration_s: float
    clock_hz: float | None
    samples: int
    zeus_j: float
    opdb_j: float | None
    visit_j: float | None
    counter_j: float | None
    difference: float | None
    visit_difference: float | None


def samples_energy_j(reading: Reading, duration_s: float) -> float | None:
    """Return mean power times the window's length (joules); None without samples."""
    powers = [watts for _, watts in reading.power_samples]
    return statistics.fmean(powers) * duration_s if powers else None


def counter_energy_j(edges: Sequence[tuple[float, float]], duration_s: float) -> float | None:
    """Return the counter's slope between its first and last edge, extended to the window (J)."""
    if len(edges) < 2:
        return None
    (first_s, first_j), (last_s, last_j) = edges[0], edges[-1]
    return (last_j - first_j) / (last_s - first_s) * duration_s


def middle(start_s: float, end_s: float, length_s: float) -> tuple[float, float]:
    """Return the stretch of this length in the middle of a window (seconds)."""
    center_s, half_s = (start_s + end_s) / 2, min(length_s, end_s - start_s) / 2
    return center_s - half_s, center_s + half_s


def difference(ours: float | None, theirs: float) -> float | None:
    """Return ours / theirs - 1; None where either is missing."""
    return None if ours is None or not theirs else ours / theirs - 1


# loads


@dataclass(frozen=True)
class Load:
    """A steady load: a burst of some calls, and the share of time in which bursts run."""

    name: str
    burst: Callable[[], None]
    gap_s: float = 0.0
    duty: float = 1.0


def run_load(load: Load, seconds: float) -> None:
    """Keep the device at the load for so many seconds; the queue is left full."""
    end_s = time.monotonic() + seconds
    queued: deque[torch.cuda.Event] = deque()
    while time.monotonic() < end_s:
        load.burst()
        mark = torch.cuda.Event()
        mark.record()
        queued.append(mark)
        if load.gap_s:
            mark.synchronize()
            time.sleep(load.gap_s)
        elif len(queued) > QUEUE_DEPTH:
            queued.popleft().synchronize()


def burst_of(step: Callable[[], Any]) -> tuple[Callable[[], None], float]:
    """Return a burst of about `BURST_S` of the step, and how long it takes (seconds)."""

    def timed(calls: int) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            step()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    timed(3)  # lazy set-up
    calls = max(1, round(BURST_S * 10 / timed(10)))

    def burst() -> None:
        for _ in range(calls):
            step()

    return burst, timed(calls)


def steps(device: str) -> dict[str, Callable[[], Any]]:
    """Return the three calls, on random data that stays finite."""

    def matmul(size: int, dtype: torch.dtype) -> Callable[[], Any]:
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    x = torch.randn(2**28, device=device)
    y = torch.empty_like(x)
    return {
        "matmul float32": matmul(4096, torch.float32),
        "matmul bfloat16": matmul(8192, torch.bfloat16),
        "elementwise float32": lambda: torch.mul(x, 0.5, out=y),
    }


def mean_clock_hz(reading: Reading) -> float | None:
    """Return the mean of the clock samples (hertz)."""
    return statistics.fmean(reading.clock_samples_hz) if reading.clock_samples_hz else None


def unthrottled(name: str, step: Callable[[], Any], meter: Meter, highest_hz: float | None) -> Load:
    """Return the load at the largest share of time that leaves the clock at its highest."""
    burst, burst_s = burst_of(step)
    for duty in DUTIES:
        load = Load(name, burst, burst_s * (1 / duty - 1), duty)
        run_load(load, TRIAL_S)
        end_s = time.monotonic()
        clock_hz = mean_clock_hz(meter.window(end_s - TRIAL_S / 2, end_s))
        if not highest_hz or not clock_hz or clock_hz >= FULL_CLOCK_SHARE * highest_hz:
            break
    return load


# both meters


def compare(load: Load, zeus: Any, meter: Meter, seconds: float) -> Comparison:
    """Run a load and read the same window by both."""
    run_load(load, SETTLE_S)
    start_s = time.monotonic()
    zeus.begin_window(load.name, sync_execution=False)  # the device stays busy at both ends
    run_load(load, seconds)
    end_s = time.monotonic()
    theirs = zeus.end_window(load.name, sync_execution=False)
    torch.cuda.synchronize()
    whole = meter.window(start_s, end_s)
    visit = meter.window(*middle(start_s, end_s, WINDOW_S))
    duration_s = end_s - start_s
    zeus_j = float(theirs.total_energy)
    opdb_j, visit_j = (samples_energy_j(reading, duration_s) for reading in (whole, visit))
    return Comparison(
        load=load.name,
        duty=load.duty,
        duration_s=duration_s,
        zeus_duration_s=float(theirs.time),
        clock_hz=mean_clock_hz(whole),
        samples=len(whole.power_samples),
        zeus_j=zeus_j,
        opdb_j=opdb_j,
        visit_j=visit_j,
        counter_j=counter_energy_j(whole.counter_edges, duration_s),
        difference=difference(opdb_j, zeus_j),
        visit_difference=difference(visit_j, zeus_j),
    )


def open_zeus() -> tuple[Any, str]:
    """Return Zeus's monitor of GPU 0 and Zeus's version.

    Raises:
        CannotMeasureError: Zeus is not installed.
    """
    try:
        import zeus
        from zeus.monitor import ZeusMonitor
    except ImportError as error:
        raise CannotMeasureError(f"Zeus cannot be imported ({error}); pip install zeus") from error
    return ZeusMonitor(gpu_indices=[0], cpu_indices=[]), str(zeus.__version__)


def measure(platform: Platform, seconds: float) -> tuple[str, list[Comparison]]:
    """Return Zeus's version and the comparison of every load, told as soon as it is there."""
    zeus, version = open_zeus()
    meter = open_meter(platform)
    rows = []
    try:
        print(HEADER)
        for name, step in steps(platform.torch_device).items():
            load = unthrottled(name, step, meter, platform.device.max_clock_hz)
            rows.append(compare(load, zeus, meter, seconds))
            print(line(rows[-1]), flush=True)
    finally:
        meter.close()
    return version, rows


HEADER = f"{'load':20} {'duty':>5} {'clock':>9} {'Zeus':>11} {'opdb':>21} {'opdb, 0.22 s':>21}"


def line(row: Comparison) -> str:
    """Show one comparison in one line."""
    clock = "–" if row.clock_hz is None else f"{row.clock_hz / 1e6:.0f} MHz"
    ours = _energy(row.opdb_j, row.difference)
    visit = _energy(row.visit_j, row.visit_difference)
    return f"{row.load:20} {row.duty:5.2f} {clock:>9} {row.zeus_j:9.1f} J {ours:>21} {visit:>21}"


def _energy(energy_j: float | None, apart: float | None) -> str:
    if energy_j is None or apart is None:
        return "–"
    return f"{energy_j:.1f} J {100 * apart:+.2f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S")
    parser.add_argument("--json", type=new_file, metavar="FILE")
    options = parser.parse_args()
    if not 1 <= options.seconds <= HISTORY_S - 10:
        parser.error(f"--seconds {options.seconds:g}: from 1 to {HISTORY_S - 10:g}")
    if not torch.cuda.is_available():
        print(f"opdb_vs_zeus: torch {torch.__version__} sees no NVIDIA GPU here", file=sys.stderr)
        return CannotMeasureError.exit_status
    try:
        platform = detect("cuda:0")
        version, rows = measure(platform, options.seconds)
    except OpdbError as error:
        print(f"opdb_vs_zeus: {error}", file=sys.stderr)
        return error.exit_status
    edges = COUNTER_PERIOD_S / options.seconds
    print(f"{NOTE} The counter's steps leave Zeus's figure up to {100 * edges:.1f} % uncertain.")
    if options.json:
        document = {
            "device": platform.device.name,
            "board": platform.board.uuid,
            "environment": {**platform.environment, "zeus": version},
            "seconds": options.seconds,
            "note": NOTE,
            "loads": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
