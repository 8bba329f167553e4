"""What is known of a set of workloads on a device, and what to measure next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from opdb.compose.alike import Size
from opdb.compose.sizes import SharesByKey, shares_of, sizes_of, whole_of
from opdb.growth import benched_configurations
from opdb.plan.known import (
    Estimated,
    Prices,
    base_power_w,
    costs_on,
    failed_on,
    has_energy,
    prices,
)
from opdb.plan.ranking import Demand, Step, rank
from opdb.records import Configuration, Cost, Device, Json, Workload
from opdb.significance import Significance
from opdb.store import Store

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
        """Return the smaller of time and energy; 0 where it is not known."""
        if self.time is None:
            return 0.0
        return self.time if self.energy is None else min(self.time, self.energy)


@dataclass(frozen=True)
class Survey:
    """Workloads on a device: what is measured, what failed, how large everything is.

    `costs` holds what is measured by configuration key, `failed` why others cannot be; `sizes` is
    None for what cannot be sized. `energy` says whether energy counts beside time.
    """

    device: str
    workloads: tuple[Workload, ...]
    costs: Mapping[str, Cost]
    failed: Mapping[str, str]
    sizes: Mapping[str, Size | None]
    prices: Prices
    base_w: float
    energy: bool

    @cached_property
    def configurations(self) -> dict[str, Configuration]:
        """Every configuration that the workloads call, by key, in the order of the workloads."""
        return configurations_of(self.workloads)

    @cached_property
    def models_of(self) -> dict[str, list[str]]:
        """The names of the models that call each configuration (key)."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for workload in self.workloads:
            for key in self.counts[workload.key]:
                found[key][workload.name] = None
        return {key: list(names) for key, names in found.items()}

    @property
    def shared(self) -> int:
        """How many configurations more than one model calls."""
        return sum(len(names) > 1 for names in self.models_of.values())

    @property
    def pending(self) -> list[str]:
        """The configurations (keys) to bench that are neither measured nor known to fail."""
        settled = self.costs.keys() | self.failed.keys()
        return [key for key in benched_configurations(self.workloads) if key not in settled]

    @property
    def unsized(self) -> list[str]:
        """The configurations (keys) of which nothing can be said before they are measured."""
        return [key for key in self.pending if self.sizes[key] is None]

    def seconds(self, keys: Iterable[str]) -> float:
        """Return what measuring these configurations is likely to take, in GPU-seconds."""
        return sum(self.price(key) for key in keys)

    def price(self, key: str) -> float:
        """Return what measuring a configuration is likely to take, in GPU-seconds."""
        return max(self.prices.of(self.configurations[key]), LEAST_SECONDS)

    def shares(self, workload: Workload) -> SharesByKey | None:
        """Return each configuration's shares of a workload's time and energy; None if unsized."""
        return self._shares[workload.key]

    def whole(self, workload: Workload) -> tuple[float, float] | None:
        """Return a pass's device time (seconds) and energy (joules); None if unsized."""
        return whole_of(self.counts[workload.key], self.sizes, self.base_w)

    @cached_property
    def counts(self) -> dict[str, dict[str, int]]:
        """How often each workload (key) calls each configuration (key)."""
        return {
            workload.key: {c.key: count for c, count in workload.occurrences().items()}
            for workload in self.workloads
        }

    @cached_property
    def _shares(self) -> dict[str, SharesByKey | None]:
        return {k: shares_of(some, self.sizes, self.base_w) for k, some in self.counts.items()}

    def with_failures(self, failed: Mapping[str, str]) -> Survey:
        """Return the survey with these failures (keys with reasons) in place of its own."""
        return replace(self, failed=failed)

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
        time = max(0.0, 1 - sum(t for t, _ in left))
        energy = max(0.0, 1 - sum(e for _, e in left))
        return Coverage(of_calls, time, energy if self.energy else None)

    def only(self, workload: Workload) -> Survey:
        """Return what is known of one of the workloads alone."""
        called = self.counts[workload.key].keys()
        costs = {key: cost for key, cost in self.costs.items() if key in called}
        return replace(self, workloads=(workload,), costs=costs)

    def plan(self, goals: Mapping[str, float], significance: Significance) -> list[Step]:
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
        return steps + [Step(key, 0.0, seconds[key]) for key in hosted]

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
    """Return every configuration that workloads call, by key, in order."""
    return {c.key: c for workload in workloads for c in workload.occurrences()}


def survey(
    store: Store,
    device: Device,
    workloads: Sequence[Workload],
    settings: Mapping[str, Json],
    board: str | None = None,
    estimated: Estimated | None = None,
) -> Survey:
    """Look up what a store knows of workloads on a device; a board's (UUID) own costs go first.

    The workloads need not be in the store. `estimated` keeps the device's estimates from one survey
    to the next; without it they are made anew.

    Raises:
        InputError: what was learned on the device is damaged.
    """
    called = configurations_of(workloads)
    costs = costs_on(store, device.slug, called.values(), settings, board)
    kinds = {key: configuration.kind for key, configuration in called.items()}
    failed = failed_on(store, device.slug, settings, kinds)
    missing = [each for key, each in called.items() if key not in costs]
    estimates = (estimated or Estimated(store, device)).of(missing)
    return Survey(
        device=device.slug,
        workloads=tuple(workloads),
        costs=costs,
        failed={key: why for key, why in failed.items() if key not in costs},
        sizes=sizes_of(called.values(), costs, estimates),
        prices=prices(store, device.slug),
        base_w=base_power_w(store, device.slug),
        energy=device.type == "cuda" or has_energy(costs.values()),
    )
