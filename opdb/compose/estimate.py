"""A rough size of what was never measured, for weighting alone: no prediction rests on it.

An operator takes its operations over the rate, or its bytes over the bandwidth, that the measured
operators of the same board typically reach. Where those are slow at one of the two (convolutions
alone say little of bandwidth), the estimate is large, and coverage errs on the side of too little.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opdb.kinds import get_kind
from opdb.records import Configuration, Cost

NOMINAL_FLOPS_PER_S = 1e14
NOMINAL_BYTES_PER_S = 1e12
NOMINAL_DYNAMIC_W = 100.0
"""Where nothing is measured only ratios count: 100 operations weigh as much as one byte."""


@dataclass(frozen=True)
class Rates:
    """What the measured operators of a board reach: FLOP/s, byte/s, and watts above base power."""

    flops_per_s: float
    bytes_per_s: float
    dynamic_w: float

    def time_s(self, configuration: Configuration) -> float:
        """Return the larger of operations over rate and bytes over bandwidth."""
        kind = get_kind(configuration.kind)
        if not kind.launches(configuration):
            return 0.0
        return max(
            kind.flops(configuration) / self.flops_per_s,
            kind.bytes_moved(configuration) / self.bytes_per_s,
        )


NOMINAL_RATES = Rates(NOMINAL_FLOPS_PER_S, NOMINAL_BYTES_PER_S, NOMINAL_DYNAMIC_W)


def reached_rates(configurations: Iterable[Configuration], costs: Mapping[str, Cost]) -> Rates:
    """Return the median rates that the measured ones among these configurations reach."""
    flops: list[float] = []
    moved: list[float] = []
    watts: list[float] = []
    for configuration in configurations:
        cost = costs.get(configuration.key)
        if cost is None or cost.time_s is None or cost.time_s.mean <= 0:
            continue
        time_s = cost.time_s.mean
        kind = get_kind(configuration.kind)
        flops.append(kind.flops(configuration) / time_s)
        moved.append(kind.bytes_moved(configuration) / time_s)
        if cost.dynamic_energy_j is not None:
            watts.append(cost.dynamic_energy_j.mean / time_s)
    return Rates(
        _typical(flops, NOMINAL_FLOPS_PER_S),
        _typical(moved, NOMINAL_BYTES_PER_S),
        _typical(watts, NOMINAL_DYNAMIC_W),
    )


def _typical(values: list[float], nominal: float) -> float:
    positive = [v for v in values if v > 0]
    return statistics.median(positive) if positive else nominal
