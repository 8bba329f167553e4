"""What is known of a set of workloads on a device, and what to measure next."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opdb.derive.costs import cost_in
from opdb.growth import benched_configurations
from opdb.kinds.registry import relevant_setting
from opdb.predict.predictor import Predictor
from opdb.predict.sizes import SharesByKey, Size, shares_of, sizes_of
from opdb.records import ROOFLINE_ALONE, Configuration, Cost, Device, Json, Mode, Workload
from opdb.store import Store
from opdb.summary_files import Significance

# In which order to measure, so that every workload reaches its goal soonest.
#
# The configuration that brings most per GPU-second is taken each time. What it brings to a workload
# counts the more the less that workload still lacks, so that models which are nearly there are
# finished: divided by what is lacking, it would be the order of least mean waiting (Azar and Gamzu,
# "Ranking with submodular valuations", 2011), not divided at all, that of the cheapest whole
# (Wolsey 1982). What turns out to be unnecessary is dropped in the end.

Numbers = NDArray[Any]

EPSILON = 1e-9
"""Shares are sums of floating point numbers: a goal is reached within this."""

IMPATIENCE = 0.5
"""The power of what is lacking by which gains are divided: between the cheapest whole (0) and the
least mean waiting (1)."""


@dataclass(frozen=True)
class Demand:
    """What a workload needs of each of its quantities (time, or time and energy).

    `shares` holds, for each configuration that may be measured (key), its share of each quantity;
    `have` what is measured already.
    """

    shares: Mapping[str, tuple[float, ...]]
    have: tuple[float, ...]


@dataclass(frozen=True)
class SurveyStep:
    """A configuration (key) to measure: what it brings per GPU-second, and what it costs."""

    key: str
    gain: float
    seconds: float


def rank(
    demands: Sequence[Demand],
    goal: float,
    seconds: Mapping[str, float],
    first: Iterable[str] = (),
) -> list[SurveyStep]:
    """Return the configurations to measure, in order, until every demand is met or none is left.

    `goal` is the share of each quantity that is wanted, `seconds` what each configuration costs;
    `first` those that come first in any case, and are never dropped.
    """
    if not seconds:
        return []
    keys, prices = list(seconds), np.array(list(seconds.values()))
    shares = np.hstack([_matrix(demand, keys) for demand in demands] or [np.zeros((len(keys), 0))])
    have = np.array([part for demand in demands for part in demand.have])
    pinned = [keys.index(key) for key in dict.fromkeys(first) if key in seconds]
    steps = _greedy(shares, np.maximum(goal - have, 0.0), prices, pinned)
    have = have + shares[[place for place, _ in steps]].sum(axis=0)
    kept = []
    for place, gain in reversed(steps):
        without = have - shares[place]
        # A demand that all steps together do not meet needs each of its own.
        if place in pinned or np.any((shares[place] > 0) & (without < goal - EPSILON)):
            kept.append(SurveyStep(keys[place], gain, seconds[keys[place]]))
        else:
            have = without
    return kept[::-1]


def _matrix(demand: Demand, keys: Sequence[str]) -> Numbers:
    nothing = (0.0,) * len(demand.have)
    return np.array([demand.shares.get(key, nothing) for key in keys])


def _greedy(
    shares: Numbers, lacks: Numbers, prices: Numbers, pinned: Sequence[int]
) -> list[tuple[int, float]]:
    """Rows in order, with what each brings; columns are what lacks something."""
    rest, lacks = shares.copy(), np.where(lacks > EPSILON, lacks, 0.0)

    def worth(columns: Numbers) -> Any:
        parts = np.minimum(rest[:, columns], lacks[columns])
        return np.sum(parts / np.maximum(lacks[columns], EPSILON) ** IMPATIENCE, axis=1)

    gains = worth(np.arange(len(lacks)))
    steps: list[tuple[int, float]] = []
    while len(steps) < len(prices):
        values = gains / prices
        place = pinned[len(steps)] if len(steps) < len(pinned) else int(np.argmax(values))
        if len(steps) >= len(pinned) and values[place] <= EPSILON:
            break
        steps.append((place, max(0.0, float(values[place]))))
        columns = np.flatnonzero(rest[place])
        gains -= worth(columns)
        left = lacks[columns] - rest[place, columns]
        lacks[columns] = np.where(left > EPSILON, left, 0.0)
        rest[place] = 0.0
        gains += worth(columns)
    return steps


# What follows from what the store has of a device: costs, prices of visits and runs, failures.

NOMINAL_SECONDS = 0.8
"""GPU-seconds of a configuration's visits where none were made: the median on an H200."""

NOMINAL_RUN_SECONDS = 8.0

LEAST_OF_KIND = 5
"""Visited configurations of a kind from which its own median is taken, else that of all."""


@dataclass(frozen=True)
class Prices:
    """GPU-seconds that the visits of a configuration take.

    `of_kind` are medians of the kinds with visits enough, `usual` that of all.
    """

    usual: float
    of_kind: Mapping[str, float]

    def of(self, configuration: Configuration) -> float:
        return self.of_kind.get(configuration.kind, self.usual)


def prices(store: Store, device: str) -> Prices:
    """Return what the visits of a configuration took on a device (slug), on each board alone."""
    of_kind: dict[str, list[float]] = defaultdict(list)
    for kind, seconds in store.spent(device):
        of_kind[kind].append(seconds)
    everything = [seconds for some in of_kind.values() for seconds in some]
    if not everything:
        return Prices(NOMINAL_SECONDS, {})
    medians = {k: statistics.median(v) for k, v in of_kind.items() if len(v) >= LEAST_OF_KIND}
    return Prices(statistics.median(everything), medians)


def costs_on(
    store: Store,
    device: str,
    configurations: Iterable[Configuration],
    settings: Mapping[str, Json],
    board: str | None = None,
) -> dict[str, Cost]:
    """Return what any board of a device measured of configurations, by key; timed ones alone.

    Where several boards did, it is the cost of `board` (UUID), else of any one of them, and as
    measured: a prediction brings it over by factors, but the board may have no campaign yet.
    """
    kinds = {c.key: c.kind for c in configurations}
    found: dict[str, Cost] = {}
    boards = sorted((b.uuid for b in store.boards(device)), key=lambda uuid: uuid == board)
    timed = store.timed_on(kinds)
    for uuid in reversed(boards):
        missing = [key for key in timed if key not in found and uuid in timed[key]]
        for key, costs in store.costs(uuid, missing).items():
            cost = cost_in(costs, relevant_setting(kinds[key], settings))
            if cost is not None:
                found[key] = cost
    return found


def failed_on(
    store: Store, device: str, settings: Mapping[str, Json], kinds: Mapping[str, str]
) -> dict[str, str]:
    return {
        failure.configuration: f"{failure.outcome}: {failure.reason or 'no reason given'}"
        for failure in store.failures(device)
        if failure.configuration in kinds
        and failure.setting == relevant_setting(kinds[failure.configuration], settings)
    }


def run_seconds(store: Store, device: str, mode: Mode) -> float:
    """Nominal where none was made; what runs in other modes took says nothing: some compile."""
    runs = store.run_states(device=device, mode=mode)
    found = [run.cost_s for run in runs if run.outcome == "ok"]
    return statistics.median(found) if found else NOMINAL_RUN_SECONDS


def base_power_w(store: Store, device: str) -> float:
    """Return the base power of a device's latest calibrated campaign; 0 where none is known."""
    known = [
        watts
        for campaign in store.campaigns(device)
        if (watts := campaign.calibration.base_power_w) is not None
    ]
    return known[-1] if known else 0.0


def estimated_costs(
    store: Store, device: Device, configurations: Sequence[Configuration]
) -> dict[str, Cost]:
    """By key; those that rest on a roofline alone are left out: what was measured says more."""
    found = Predictor(store, device).estimated(configurations)
    return {key: cost for key, cost in found.items() if ROOFLINE_ALONE not in cost.flags}


LEAST_SECONDS = 0.01
"""What no configuration's visits cost less than, so that gains per second stay finite."""


@dataclass(frozen=True)
class Coverage:
    """The shares of a workload's calls, time and energy that measured operators explain.

    Time and energy are None where a configuration that was not measured cannot be sized; energy
    also on a device without power readings.
    """

    calls: float
    time: float | None
    energy: float | None

    def least(self) -> float:
        if self.time is None:
            return 0.0
        return self.time if self.energy is None else min(self.time, self.energy)


@dataclass(frozen=True)
class Survey:
    """Workloads on a device: what is measured, what failed, how large everything is.

    `costs` holds what is measured by configuration key, `failed` why others cannot be, `estimates`
    what others are estimated to cost; `sizes` is None for what cannot be sized. `energy`
    says whether energy counts beside time.
    """

    device: str
    workloads: tuple[Workload, ...]
    costs: Mapping[str, Cost]
    failed: Mapping[str, str]
    estimates: Mapping[str, Cost]
    sizes: Mapping[str, Size | None]
    prices: Prices
    base_w: float
    energy: bool

    @cached_property
    def configurations(self) -> dict[str, Configuration]:
        return configurations_of(self.workloads)

    @cached_property
    def pending(self) -> list[str]:
        settled = self.costs.keys() | self.failed.keys()
        return [key for key in benched_configurations(self.workloads) if key not in settled]

    @property
    def unsized(self) -> list[str]:
        return [key for key in self.pending if self.sizes[key] is None]

    def seconds(self, keys: Iterable[str]) -> float:
        return sum(self.price(key) for key in keys)

    def price(self, key: str) -> float:
        return max(self.prices.of(self.configurations[key]), LEAST_SECONDS)

    def left_of(self, workload: Workload) -> list[str]:
        return [key for key in self.pending if key in self.counts[workload.key]]

    @cached_property
    def counts(self) -> dict[str, dict[str, int]]:
        return {
            workload.key: {c.key: count for c, count in workload.occurrences().items()}
            for workload in self.workloads
        }

    @cached_property
    def shares(self) -> dict[str, SharesByKey | None]:
        return {k: shares_of(some, self.sizes, self.base_w) for k, some in self.counts.items()}

    def coverage(self, workload: Workload, also: Collection[str] = ()) -> Coverage:
        """Return what measured configurations, and these besides (keys), explain of a workload."""
        counts = self.counts[workload.key]
        done = {key for key in counts if key in self.costs or key in also}
        calls = sum(counts.values()) + sum(workload.unsupported.values())
        of_calls = sum(counts[key] for key in done) / calls if calls else 1.0
        shares = self.shares[workload.key]
        if shares is None:
            return Coverage(of_calls, None, None)
        left = [share for key, share in shares.items() if key not in done]
        known = any(time for time, _ in shares.values()) or not workload.unsupported
        time = known * max(0.0, 1 - sum(t for t, _ in left))
        energy = known * max(0.0, 1 - sum(e for _, e in left))
        return Coverage(of_calls, time, energy if self.energy else None)

    def plan(self, goal: float, significance: Significance) -> list[SurveyStep]:
        """Until each workload is covered to the goal; what is pinned or has no size comes first."""
        allowed = self._allowed(significance)
        seconds = {key: self.price(key) for key in allowed}
        pinned = [k for k in allowed if self.configurations[k].kind in significance.always]
        first = [*pinned, *(key for key in self.unsized if key in seconds)]
        return rank(self._demands(), goal, seconds, first)

    def _allowed(self, significance: Significance) -> list[str]:
        return [
            key for key in self.pending if self.configurations[key].kind not in significance.never
        ]

    def _demands(self) -> list[Demand]:
        demands = []
        for shares in self.shares.values():
            if shares is None:
                continue
            rest = {k: self._counted(both) for k, both in shares.items() if k not in self.costs}
            measured = [self._counted(both) for k, both in shares.items() if k in self.costs]
            zeros = self._counted((0.0, 0.0))
            have = tuple(sum(each) for each in zip(*measured, zeros, strict=True))
            demands.append(Demand(rest, have))
        return demands

    def _counted(self, shares: tuple[float, float]) -> tuple[float, ...]:
        return shares if self.energy else shares[:1]


def configurations_of(workloads: Sequence[Workload]) -> dict[str, Configuration]:
    return {c.key: c for workload in workloads for c in workload.occurrences()}


def survey(
    store: Store,
    device: Device,
    workloads: Sequence[Workload],
    settings: Mapping[str, Json],
    board: str | None = None,
    estimates: Mapping[str, Cost] | None = None,
) -> Survey:
    """Look up what a store knows of workloads on a device; a board's (UUID) own costs go first.

    The workloads need not be in the store. `estimates` are those of an earlier survey of the same
    workloads; without them they are made.
    """
    called = configurations_of(workloads)
    costs = costs_on(store, device.slug, called.values(), settings, board)
    kinds = {key: configuration.kind for key, configuration in called.items()}
    failed = failed_on(store, device.slug, settings, kinds)
    if estimates is None:
        missing = [each for key, each in called.items() if key not in costs]
        estimates = estimated_costs(store, device, missing)
    return Survey(
        device=device.slug,
        workloads=tuple(workloads),
        costs=costs,
        failed={key: why for key, why in failed.items() if key not in costs},
        estimates=estimates,
        sizes=sizes_of(called.values(), costs, estimates),
        prices=prices(store, device.slug),
        base_w=base_power_w(store, device.slug),
        energy=device.type == "cuda"
        or any(cost.dynamic_energy_j is not None for cost in costs.values()),
    )


# A plan: what would be measured, in which order, what each step brings and costs.


@dataclass(frozen=True)
class PlannedWorkload:
    workload: Workload
    now: Coverage
    then: Coverage
    left: int
    left_s: float


@dataclass(frozen=True)
class Planned:
    """A plan to a target; `beyond` are steps that the GPU-seconds given do not reach to."""

    target: float
    survey: Survey
    steps: tuple[SurveyStep, ...]
    beyond: tuple[SurveyStep, ...]
    workloads: tuple[PlannedWorkload, ...]

    @property
    def gpu_seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def planned(
    survey: Survey, target: float, significance: Significance, gpu_seconds: float | None = None
) -> Planned:
    """Plan what brings every workload to the target, within so many GPU-seconds where given."""
    steps = survey.plan(target, significance)
    until_s = list(accumulate(step.seconds for step in steps))
    within = len(steps) if gpu_seconds is None else bisect_right(until_s, gpu_seconds)
    taken = {step.key for step in steps[:within]}
    workloads = []
    for workload in survey.workloads:
        left = [key for key in survey.left_of(workload) if key not in taken]
        now, then = survey.coverage(workload), survey.coverage(workload, taken)
        workloads.append(PlannedWorkload(workload, now, then, len(left), survey.seconds(left)))
    some, beyond = tuple(steps[:within]), tuple(steps[within:])
    return Planned(target, survey, some, beyond, tuple(workloads))
