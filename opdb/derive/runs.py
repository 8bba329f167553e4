"""From model runs to the truth that predictions are held against."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opdb.derive.costs import call_times_s, quantity_of, stretch_power_w
from opdb.derive.statistics import three_sigma_mean
from opdb.records import ModelRun, Quantity, Stretch


@dataclass(frozen=True)
class RunCost:
    """What one pass of a measured model took; energy and power None where no power was read."""

    time_s: Quantity
    energy_j: Quantity | None
    power_w: float | None
    clock_hz: float | None


AGREEING = 3
"""Repeats of a model run that must agree before it ends."""


def agreeing(repeats: Sequence[Stretch]) -> list[Stretch]:
    """Return the repeats of a run whose times lie closest together, as many as must agree.

    The host of a virtual machine is at times held up by its neighbours for seconds; such a repeat
    tells of them, not of the model. All repeats are kept raw.
    """
    return [repeat for _, repeat in _closest(repeats)]


def repeat_spread(repeats: Sequence[Stretch]) -> float:
    """Return how far apart the mean times of repeats are, relative to the shortest."""
    times = [three_sigma_mean(r.replay_times_s) for r in repeats]
    return max(times) / min(times) - 1


def _closest(repeats: Sequence[Stretch]) -> list[tuple[float, Stretch]]:
    """Return the agreeing repeats, each with the mean time of its replays (seconds)."""
    timed = sorted(
        ((three_sigma_mean(r.replay_times_s), r) for r in repeats), key=lambda pair: pair[0]
    )
    spans = [timed[i : i + AGREEING] for i in range(max(1, len(timed) - AGREEING + 1))]
    return min(spans, key=lambda span: span[-1][0] / span[0][0])


def run_cost(runs: Iterable[ModelRun]) -> RunCost | None:
    """Join the repeats of a workload's runs in one mode on one board; None where none succeeded."""
    found = [run for run in runs if run.outcome == "ok"]
    if not found:
        return None
    closest = [pair for run in found for pair in _closest(run.repeats)]
    repeats = [repeat for _, repeat in closest]
    times = [mean_s / repeat.calls_per_replay for mean_s, repeat in closest]
    powers = [p for p in map(stretch_power_w, repeats) if p is not None]
    complete = len(powers) == len(repeats)
    energies = [p * t for p, t in zip(powers, times, strict=True)] if complete else []
    clocks = [hz for r in repeats for hz in r.clock_samples_hz]
    return RunCost(
        time_s=quantity_of(times, None, [t for r in repeats for t in call_times_s(r)]),
        energy_j=quantity_of(energies, None) if energies else None,
        power_w=statistics.fmean(powers) if powers else None,
        clock_hz=statistics.fmean(clocks) if clocks else None,
    )
