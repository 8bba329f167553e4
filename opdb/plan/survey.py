"""What is known of a set of workloads on a device, and what to measure next."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opdb.derive.costs import cost_in
from opdb.growth import benched_configurations
from opdb.kinds.registry import relevant_setting
from opdb.predict.predictor import Predictor
from opdb.predict.sizes import SharesByKey, Size, shares_of, sizes_of
from opdb.records import Configuration, Cost, Device, Json, Mode, Workload
from opdb.records.measurement import ROOFLINE_ALONE
from opdb.significance import Significance
from opdb.store import Store

# In which order to measure, so that every workload reaches its goal soonest.
#
# What is asked is a covering problem: of configurations that cost GPU-seconds and serve several
# workloads, find a cheap set that gives each workload its goal. A linear program, in which a part
# of a configuration may be measured, finds the cheapest set; whatever it wants a part of is a
# candidate. Of these, the one that brings most per GPU-second is taken each time. What it brings to
# a workload counts the more the less that workload still lacks, so that models which are nearly
# there are finished: divided by what is lacking, it would be the order of least mean waiting (Azar
# and Gamzu, "Ranking with submodular valuations", 2011), not divided at all, that of the cheapest
# whole (Wolsey 1982). What turns out to be unnecessary is dropped in the end.

Numbers = NDArray[Any]

EPSILON = 1e-9
"""Shares are sums of floating point numbers: a goal is reached within this."""

IMPATIENCE = 0.5
"""The power of what is lacking by which gains are divided: between the cheapest whole (0) and the
least mean waiting (1)."""


@dataclass(frozen=True)
class Demand:
    """What a workload needs: a goal for each of its quantities (time, or time and energy).

    `shares` holds, for each configuration that may be measured (key), its share of each quantity;
    `have` what is measured already.
    """

    name: str
    shares: Mapping[str, tuple[float, ...]]
    have: tuple[float, ...]
    goal: float


@dataclass(frozen=True)
class SurveyStep:
    """A configuration (key) to measure: what it brings per GPU-second, and what it costs."""

    key: str
    gain: float
    seconds: float


def rank(
    demands: Sequence[Demand], seconds: Mapping[str, float], first: Iterable[str] = ()
) -> list[SurveyStep]:
    """Return the configurations to measure, in order, until every demand is met or none is left.

    `seconds` is what each costs; `first` those that come first in any case, and are never dropped.
    """
    gains = _Gains(demands, seconds)
    pinned = [key for key in dict.fromkeys(first) if key in seconds]
    steps = [SurveyStep(key, gains.of(key), seconds[key]) for key in pinned]
    for key in pinned:
        gains.take(key)
    while seconds and (found := gains.largest()) is not None:
        steps.append(SurveyStep(found, gains.of(found), seconds[found]))
        gains.take(found)
    kept = _needed(demands, steps, set(pinned))
    return [step for step in steps if step.key in kept]


def short_of(demand: Demand, have: Sequence[float]) -> tuple[float, ...]:
    return tuple(lack if (lack := demand.goal - part) > EPSILON else 0.0 for part in have)


def cheapest(demands: Sequence[Demand], seconds: Mapping[str, float]) -> list[str]:
    """Return the configurations (keys) of which the cheapest cover, parts allowed, wants any.

    All of them where the linear program finds no end.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    place = {key: number for number, key in enumerate(seconds)}
    rows, bounds = _constraints(demands, place)
    if not bounds:
        return []
    numbers, columns, shares = (np.array(each) for each in zip(*rows, strict=True))
    matrix = csr_array((shares, (numbers, columns)), shape=(len(bounds), len(place)))
    prices = np.array(list(seconds.values()))
    found = linprog(prices, A_ub=-matrix, b_ub=-np.array(bounds), bounds=(0, 1), method="highs")
    if found.x is None:
        return list(seconds)
    return [key for key, part in zip(seconds, found.x, strict=True) if part > EPSILON]


def _constraints(
    demands: Sequence[Demand], place: Mapping[str, int]
) -> tuple[list[tuple[int, int, float]], list[float]]:
    """Return what each quantity of each demand takes: (row, column, share), and the least sum.

    What cannot be reached is asked for as far as it can.
    """
    rows: list[tuple[int, int, float]] = []
    bounds: list[float] = []
    for demand in demands:
        for quantity, lack in enumerate(short_of(demand, demand.have)):
            its = [(place[k], s[quantity]) for k, s in demand.shares.items() if k in place]
            whole = sum(share for _, share in its)
            if lack > 0 and whole > 0:
                rows += [(len(bounds), column, share) for column, share in its if share > 0]
                bounds.append(min(lack, whole * (1 - EPSILON)))
    return rows, bounds


class _Gains:
    """What every configuration brings to the demands, kept up as configurations are taken.

    The shares that a demand has of it are a matrix: a row for each configuration, a column for each
    quantity. What the cheapest cover wants goes before all else.
    """

    def __init__(self, demands: Sequence[Demand], seconds: Mapping[str, float]) -> None:
        self._keys = list(seconds)
        self._place = {key: number for number, key in enumerate(self._keys)}
        self._seconds = np.array(list(seconds.values()))
        self._left = np.ones(len(self._keys), dtype=bool)
        wanted = cheapest(demands, seconds)
        self._wanted = np.isin(np.arange(len(self._keys)), [self._place[key] for key in wanted])
        self._lacks = [np.array(short_of(demand, demand.have)) for demand in demands]
        self._shares = []
        for demand in demands:
            nothing = (0.0,) * len(demand.have)
            shares = [demand.shares.get(key, nothing) for key in self._keys]
            self._shares.append(np.reshape(shares, (len(self._keys), len(nothing))))
        self._worths = [self._worth(number) for number in range(len(demands))]
        self._gains = sum(self._worths, np.zeros(len(self._keys)))

    def of(self, key: str) -> float:
        place = self._place[key]
        return max(0.0, float(self._gains[place] / self._seconds[place]))

    def largest(self) -> str | None:
        """Return the configuration that brings most; None where none brings anything."""
        values = np.where(self._left, self._gains / self._seconds, 0.0)
        for some in (np.where(self._wanted, values, 0.0), values):
            best = int(np.argmax(some))
            if some[best] > EPSILON:
                return self._keys[best]
        return None

    def take(self, key: str) -> None:
        place = self._place[key]
        self._left[place] = False
        for number, (lacks, shares) in enumerate(zip(self._lacks, self._shares, strict=True)):
            if lacks.any() and shares[place].any():
                rest = lacks - shares[place]
                self._lacks[number] = np.where(rest > EPSILON, rest, 0.0)
                shares[place] = 0.0
                before, self._worths[number] = self._worths[number], self._worth(number)
                self._gains += self._worths[number] - before

    def _worth(self, number: int) -> Numbers:
        """Return what each configuration brings of what a demand lacks."""
        short = self._lacks[number] > 0
        lacks = self._lacks[number][short]
        parts = np.minimum(self._shares[number][:, short], lacks) / lacks**IMPATIENCE
        worth: Numbers = parts.sum(axis=1)
        return worth


def _needed(demands: Sequence[Demand], steps: Sequence[SurveyStep], pinned: set[str]) -> set[str]:
    """Return the steps (keys) without which a demand would be missed, looked at from the end.

    A demand that all steps together do not meet needs each of its own.
    """
    taken = {step.key for step in steps}
    have = [
        [
            part + sum(s[q] for k, s in d.shares.items() if k in taken)
            for q, part in enumerate(d.have)
        ]
        for d in demands
    ]
    users: dict[str, list[int]] = defaultdict(list)
    for number, demand in enumerate(demands):
        for key in demand.shares.keys() & taken:
            users[key].append(number)

    def spare(key: str) -> bool:
        return all(_spared(demands[n], have[n], demands[n].shares[key]) for n in users[key])

    for step in reversed(steps):
        if step.key not in pinned and spare(step.key):
            taken.discard(step.key)
            for n in users[step.key]:
                have[n] = [h - s for h, s in zip(have[n], demands[n].shares[step.key], strict=True)]
    return taken


def _spared(demand: Demand, have: Sequence[float], shares: Sequence[float]) -> bool:
    return all(s == 0 or h - s >= demand.goal - EPSILON for h, s in zip(have, shares, strict=True))


# What follows from what the store has of a device: costs, prices of visits and runs, failures.

NOMINAL_SECONDS = 0.8
"""GPU-seconds of a configuration's visits where none were made: the median on an H200."""

NOMINAL_RUN_SECONDS = 8.0
"""Seconds of a model run where none was made."""

LEAST_OF_KIND = 5
"""Visited configurations of a kind from which its own median is taken, else that of all."""


@dataclass(frozen=True)
class Prices:
    """GPU-seconds that the visits of a configuration take, and what that rests on.

    `of_kind` are medians of the kinds with visits enough, `usual` that of all; `rests_on` counts
    the configurations visited.
    """

    usual: float
    of_kind: Mapping[str, float]
    rests_on: int

    def of(self, configuration: Configuration) -> float:
        return self.of_kind.get(configuration.kind, self.usual)


def prices(store: Store, device: str, kinds: Collection[str] | None = None) -> Prices:
    """Return what the visits of a configuration took on a device (slug), on each board alone.

    With `kinds`, those of these kinds alone count.
    """
    of_kind: dict[str, list[float]] = defaultdict(list)
    for each in store.spent(device, kinds=kinds):
        of_kind[each.kind].append(each.seconds)
    everything = [seconds for some in of_kind.values() for seconds in some]
    if not everything:
        return Prices(NOMINAL_SECONDS, {}, 0)
    medians = {k: statistics.median(v) for k, v in of_kind.items() if len(v) >= LEAST_OF_KIND}
    return Prices(statistics.median(everything), medians, len(everything))


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
    """Return the median seconds of a model run on a device in a mode; nominal where none was made.

    Compiling takes minutes at times: what runs in other modes took says nothing.
    """
    found = store.run_seconds(device, mode)
    return statistics.median(found) if found else NOMINAL_RUN_SECONDS


def base_power_w(store: Store, device: str) -> float:
    """Return the base power of a device's latest calibrated campaign; 0 where none is known."""
    known = [
        watts
        for campaign in store.campaigns(device)
        if (watts := campaign.calibration.base_power_w) is not None
    ]
    return known[-1] if known else 0.0


def has_energy(costs: Collection[Cost]) -> bool:
    return any(cost.dynamic_energy_j is not None for cost in costs)


def estimated_costs(
    store: Store, device: Device, configurations: Sequence[Configuration]
) -> dict[str, Cost]:
    """Return what `python -m opdb.estimates` estimates of configurations on a device, by key.

    Estimates that rest on a roofline alone are left out: what was measured alike says more.
    """
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
    def models_of(self) -> dict[str, list[str]]:
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for workload in self.workloads:
            for key in self.counts[workload.key]:
                found[key][workload.name] = None
        return {key: list(names) for key, names in found.items()}

    @property
    def shared(self) -> int:
        return sum(len(names) > 1 for names in self.models_of.values())

    @property
    def pending(self) -> list[str]:
        """The configurations (keys) to bench that are neither measured nor known to fail."""
        settled = self.costs.keys() | self.failed.keys()
        return [key for key in benched_configurations(self.workloads) if key not in settled]

    @property
    def unsized(self) -> list[str]:
        return [key for key in self.pending if self.sizes[key] is None]

    def seconds(self, keys: Iterable[str]) -> float:
        return sum(self.price(key) for key in keys)

    def price(self, key: str) -> float:
        return max(self.prices.of(self.configurations[key]), LEAST_SECONDS)

    def shares(self, workload: Workload) -> SharesByKey | None:
        return self._shares[workload.key]

    @cached_property
    def counts(self) -> dict[str, dict[str, int]]:
        return {
            workload.key: {c.key: count for c, count in workload.occurrences().items()}
            for workload in self.workloads
        }

    @cached_property
    def _shares(self) -> dict[str, SharesByKey | None]:
        return {k: shares_of(some, self.sizes, self.base_w) for k, some in self.counts.items()}

    def coverage(self, workload: Workload, also: Collection[str] = ()) -> Coverage:
        """Return what measured configurations, and these besides (keys), explain of a workload."""
        counts = self.counts[workload.key]
        done = {key for key in counts if key in self.costs or key in also}
        calls = sum(counts.values()) + sum(workload.unsupported.values())
        of_calls = sum(counts[key] for key in done) / calls if calls else 1.0
        shares = self.shares(workload)
        if shares is None:
            return Coverage(of_calls, None, None)
        left = [share for key, share in shares.items() if key not in done]
        known = any(time for time, _ in shares.values()) or not workload.unsupported
        time = known * max(0.0, 1 - sum(t for t, _ in left))
        energy = known * max(0.0, 1 - sum(e for _, e in left))
        return Coverage(of_calls, time, energy if self.energy else None)

    def only(self, workload: Workload) -> Survey:
        called = self.counts[workload.key].keys()
        costs = {key: cost for key, cost in self.costs.items() if key in called}
        return replace(self, workloads=(workload,), costs=costs)

    def plan(self, goals: Mapping[str, float], significance: Significance) -> list[SurveyStep]:
        """Return what to measure, in order, until each workload (key) reaches its goal.

        What is pinned and what cannot be sized comes first; what costs the host alone last, one
        configuration of each kind, since kinds share their host times.
        """
        allowed = self._allowed(significance)
        seconds = {key: self.price(key) for key in allowed}
        pinned = [k for k in allowed if significance.is_always(self.configurations[k])]
        wanted = {key for each in goals for key in self.counts[each]}
        first = [*pinned, *(key for key in self.unsized if key in wanted and key in seconds)]
        steps = rank(self._demands(goals), seconds, first)
        taken = {step.key for step in steps}
        hosted = self._for_the_host(wanted & seconds.keys() - taken, taken)
        return steps + [SurveyStep(key, 0.0, seconds[key]) for key in hosted]

    def _allowed(self, significance: Significance) -> list[str]:
        """Return the pending configurations (keys) that the project's list does not leave out."""
        least = significance.least_share
        large = set(self.pending)
        if least > 0:
            every = [shares for w in self.workloads if (shares := self.shares(w)) is not None]
            large = {k for shares in every for k, both in shares.items() if max(both) >= least}
            large |= set(self.unsized)
        return [
            key
            for key in self.pending
            if significance.is_always(self.configurations[key])
            or (key in large and not significance.is_never(self.configurations[key]))
        ]

    def _demands(self, goals: Mapping[str, float]) -> list[Demand]:
        """Return what workloads lack: as sizes are thought to be, and as large as they may be."""
        demands = []
        for workload in self.workloads:
            if workload.key not in goals:
                continue
            shares = self.shares(workload)
            counts = self.counts[workload.key]
            doubted = shares_of(counts, self.sizes, self.base_w, doubted=True)
            if shares is None or doubted is None:
                continue
            every = {
                key: self._counted(both) + self._counted(doubted[key])
                for key, both in shares.items()
            }
            measured = [quantities for key, quantities in every.items() if key in self.costs]
            rest = {key: each for key, each in every.items() if key not in self.costs}
            zeros = ((0.0,) * (4 if self.energy else 2),)
            have = tuple(sum(each) for each in zip(*measured, *zeros, strict=True))
            demands.append(Demand(workload.key, rest, have, goals[workload.key]))
        return demands

    def _counted(self, shares: tuple[float, float]) -> tuple[float, ...]:
        return shares if self.energy else shares[:1]

    def _for_the_host(self, keys: Collection[str], taken: Collection[str]) -> list[str]:
        """Return one configuration (key) of each kind that nothing measured or taken is of."""
        if not self.energy:
            return []  # on a processor the host is the device
        known = {self.configurations[key].title for key in (*self.costs, *taken)}
        calls: Counter[str] = Counter()
        for counts in self.counts.values():
            calls.update(counts)
        most: dict[str, str] = {}
        for key in sorted(keys, key=lambda key: (-calls[key], key)):
            kind = self.configurations[key].title
            if kind not in known:
                most.setdefault(kind, key)
        return list(most.values())


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
        energy=device.type == "cuda" or has_energy(costs.values()),
    )


# A plan: what would be measured, in which order, what each step brings and costs.


@dataclass(frozen=True)
class PlannedWorkload:
    """A workload's coverage now and after the plan, and what is pending of it."""

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
    goals = dict.fromkeys((workload.key for workload in survey.workloads), target)
    steps = survey.plan(goals, significance)
    within = _within(steps, gpu_seconds)
    taken = {step.key for step in steps[:within]}
    workloads = []
    for workload in survey.workloads:
        alone = survey.only(workload)
        left = [key for key in alone.pending if key not in taken]
        now, then = survey.coverage(workload), survey.coverage(workload, taken)
        workloads.append(PlannedWorkload(workload, now, then, len(left), alone.seconds(left)))
    some, beyond = tuple(steps[:within]), tuple(steps[within:])
    return Planned(target, survey, some, beyond, tuple(workloads))


def _within(steps: Sequence[SurveyStep], gpu_seconds: float | None) -> int:
    spent_s = 0.0
    for number, step in enumerate(steps):
        spent_s += step.seconds
        if gpu_seconds is not None and spent_s > gpu_seconds:
            return number
    return len(steps)
