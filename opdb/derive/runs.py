"""From model runs to the truth that predictions are compared with."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.derive.costs import call_times_s, quantity_of, stretch_power_w
from opdb.derive.quiet import HELD_UP, LEAST_BLOCKS, blocks_s, host_slowdown, quiet_time_s
from opdb.derive.statistics import Typical, three_sigma_mean
from opdb.records import ModelRun, Quantity, Stretch, Workload


@dataclass(frozen=True)
class RunCost:
    """The cost of one pass of a measured model; energy and power None where no power was read.

    `spread` is how far apart the repeats that count are, relative to the fastest, of the run where
    they are furthest; `flags` are what was noticed of the runs. Where the pass waits for the host,
    `time_s` is its quiet time, the median that of all blocks, and `slowdown` is how much longer the
    host took when it was measured.
    """

    time_s: Quantity
    energy_j: Quantity | None
    power_w: float | None
    clock_hz: float | None
    spread: float
    flags: tuple[str, ...]
    slowdown: float | None = None

    @property
    def is_uneven(self) -> bool:
        """Whether no three repeats agree: the host or the board was most likely disturbed."""
        return self.spread > HOSTS_AGREEMENT


AGREEING = 3
"""Repeats of a model run that must agree before it ends."""

AGREEMENT = 0.01
"""They agree where their mean times differ by this share at most."""

HOSTS_AGREEMENT = 0.03
"""The same where the host is the bottleneck: its speed changes more than the device's."""


QUIET_BLOCKS = "quiet_blocks"
"""The fact of an eager run that waits for the host: how many blocks its passes make, of which its
quiet time is told (`opdb.derive.quiet`). Older runs lack it."""


def agreeing(repeats: Sequence[Stretch]) -> list[Stretch]:
    """Return the repeats of a run that agree best; where no three agree, the three fastest.

    Neighbours may slow down the host of a virtual machine for seconds; such a repeat is slower, and
    shows them rather than the model. Repeats much slower than the fastest are left out even where
    three of them agree. All repeats are kept raw.
    """
    return [repeat for _, repeat in _agreeing(repeats)]


def repeat_spread(repeats: Sequence[Stretch]) -> float:
    times = [three_sigma_mean(r.replay_times_s) for r in repeats]
    return max(times) / min(times) - 1


def _agreeing(
    repeats: Sequence[Stretch], typical: Typical = three_sigma_mean
) -> list[tuple[float, Stretch]]:
    timed = sorted(((typical(r.replay_times_s), r) for r in repeats), key=lambda pair: pair[0])
    within = sum(mean_s <= timed[0][0] * (1 + HELD_UP) for mean_s, _ in timed)
    calm = timed[: max(within, AGREEING)]
    spans = [calm[i : i + AGREEING] for i in range(max(1, len(calm) - AGREEING + 1))]
    closest = min(spans, key=lambda span: span[-1][0] / span[0][0])
    return closest if closest[-1][0] <= closest[0][0] * (1 + AGREEMENT) else spans[0]


def run_cost(
    runs: Iterable[ModelRun],
    typical: Typical = three_sigma_mean,
    base_power_w: float | None = None,
) -> RunCost | None:
    """Join the repeats of a workload's runs in one mode on one board; None where none succeeded.

    `typical` is what the times of a repeat come to (`typical_on` the device). A slower host adds
    `base_power_w` over the time by which a pass is longer: so much less is a pass in quiet time.
    """
    found = [run for run in runs if run.outcome == "ok"]
    if not found:
        return None
    agreed = [_agreeing(run.repeats, typical) for run in found]
    taken = [pair for pairs in agreed for pair in pairs]
    repeats = [repeat for _, repeat in taken]
    times = [mean_s / repeat.calls_per_replay for mean_s, repeat in taken]
    powers = [p for p in map(stretch_power_w, repeats) if p is not None]
    complete = len(powers) == len(repeats)
    energies = [p * t for p, t in zip(powers, times, strict=True)] if complete else []
    clocks = [hz for r in repeats for hz in r.clock_samples_hz]
    cost = RunCost(
        time_s=quantity_of(times, None, [t for r in repeats for t in call_times_s(r)]),
        energy_j=quantity_of(energies, None) if energies else None,
        power_w=statistics.fmean(powers) if powers else None,
        clock_hz=statistics.fmean(clocks) if clocks else None,
        spread=max(pairs[-1][0] / pairs[0][0] for pairs in agreed) - 1,
        flags=tuple(dict.fromkeys(flag for run in found for flag in run.flags)),
    )
    blocks = run_blocks_s(found)
    return _in_quiet_time(cost, blocks, base_power_w) if blocks else cost


def run_blocks_s(runs: Sequence[ModelRun]) -> list[float]:
    """The mean pass (s) of each block; empty where a run has no quiet time."""
    if not all(run.facts.get(QUIET_BLOCKS) for run in runs):
        return []
    blocks = [blocks_s(call_times_s(repeat)) for run in runs for repeat in run.repeats]
    found = [s for each in blocks for s in each]
    return found if len(found) >= LEAST_BLOCKS else []


def _in_quiet_time(cost: RunCost, blocks: Sequence[float], base_power_w: float | None) -> RunCost:
    quiet_s = quiet_time_s(blocks)
    width, count = cost.time_s.half_width, len(blocks)
    energy_j, power_w = cost.energy_j, cost.power_w
    if energy_j is not None and base_power_w is not None:
        energy_j = energy_j.moved(base_power_w * (quiet_s - cost.time_s.mean))
        power_w = energy_j.mean / quiet_s
    return replace(
        cost,
        time_s=Quantity.around(statistics.median(blocks), quiet_s, width, count),
        energy_j=energy_j,
        power_w=power_w,
        slowdown=host_slowdown(blocks),
    )


# Whether a model launched the kernels that its operators launched: by name and count.


_GENERATED = re.compile(r"(triton_[a-z]+)_fused.*")
"""A kernel that inductor generated: its sort, then the operators around it and a running number."""


@dataclass(frozen=True)
class Launches:
    """The kernels of one pass of a model against those of its operators' visits.

    `model` counts what the model launched and its operators did not, `operators` the other way
    round, both by kernel name. `unseen` are configurations whose kernels no visit saw.
    """

    model: Mapping[str, int]
    operators: Mapping[str, int]
    launched: int
    unseen: tuple[str, ...]

    @property
    def agree(self) -> bool:
        return not self.model and not self.operators and not self.unseen


def compare_launches(
    workload: Workload, run: ModelRun, of_operators: Mapping[str, Mapping[str, int]]
) -> Launches | None:
    """Compare a run's kernels with those of its operators' visits (by configuration key).

    None where the run's kernels were not seen. Those that inductor generates count by their sort
    (`triton_poi` …): the rest of their names says where in a graph they stand. An operator that
    restores nothing and launches nothing counts as seen, with no kernel.
    """
    if run.kernels is None:
        return None
    together: Counter[str] = Counter()
    unseen = []
    for configuration, count in workload.occurrences().items():
        if configuration.key not in of_operators:
            unseen.append(configuration.key)
            continue
        for name, launches in of_operators[configuration.key].items():
            together[_sort_of(name)] += count * launches
    model: Counter[str] = Counter()
    for name, launches in run.kernels.items():
        model[_sort_of(name)] += launches
    return Launches(dict(model - together), dict(together - model), model.total(), tuple(unseen))


def _sort_of(name: str) -> str:
    generated = _GENERATED.fullmatch(name)
    return generated[1] if generated else name
