"""The visits pending on a device, their order and their cost."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from opdb.footprint import touched_bytes, weight_bytes
from opdb.growth import benched_configurations
from opdb.records import (
    ALGORITHM_SETTING,
    Access,
    Board,
    Configuration,
    Json,
    Outcome,
    Role,
    Weights,
)
from opdb.settings import relevant_setting, relevant_settings
from opdb.store import ConfigurationFilter, MissingVisits, Store, VisitFilter

ROUNDS = 2
"""Good visits wanted of a configuration of no model: two in different random rounds beat one long
one. Of what models call one is enough at first: further ones go where they narrow a model's sum
(`opdb.bench.allocation`)."""

SPREAD_SHARE = 0.1
"""Share of the configurations that are visited twice where one visit each is wanted: by how far
their visits lie apart, all intervals are judged."""

OTHER_WORKLOAD_ROUNDS = 1
"""Good visits wanted under a workload other than a model's: they differ by more than visits do."""

MAX_ROUNDS = 4
"""Good visits of a configuration whose interval stays wider than requested, at most."""

MAX_REDONE = 2
"""Visits of a configuration made again because they were rejected, at most."""

DUPLICATE_SHARE = 0.1
"""Share of the configurations that are measured once more, blind, to test stated intervals."""

FINAL_OUTCOMES: tuple[Outcome, ...] = ("unsupported", "out_of_memory", "error")
"""Outcomes that a repetition would not change; `retry` asks for it all the same."""


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan: kinds (None: all), seed of the random order, share of duplicates.

    `this_board` asks what this very board lacks, whatever other boards of the device have;
    `access` what calls are to find in the caches; `resident_bytes` is how much the L2 keeps from
    one pass to the next. There are duplicates of a model's calls alone. `rounds` good visits
    are wanted of each configuration and each duplicate; None: one of what models call, two of all
    else. `rounds_of` says of which more.
    `configurations` (keys) are all that is planned where they are given, and rounds visit them in
    that order: where time is short, the first of them are what it was spent on.
    """

    kinds: Collection[str] | None = None
    seed: int = 0
    retry: bool = False
    this_board: bool = False
    duplicates: float = DUPLICATE_SHARE
    rounds: int | None = ROUNDS
    access: Access = "model"
    resident_bytes: float | None = None
    configurations: Sequence[str] | None = None

    @property
    def most_rounds(self) -> int:
        """How many good visits are wanted of any configuration at most."""
        return max(self.rounds or ROUNDS, ROUNDS)

    def rounds_of(self, configuration: Configuration, called: Collection[str] = ()) -> int:
        """Return how many good visits are wanted of a configuration; models call those `called`."""
        rounds = self.rounds or (1 if configuration.key in called else ROUNDS)
        if is_duplicated(configuration, max(self.duplicates, SPREAD_SHARE)):
            return max(rounds, ROUNDS)
        return rounds


@dataclass(frozen=True)
class PlannedVisit:
    """One visit to make: a configuration, the role in which it is stored, and what calls find.

    `algorithm` is the one that the convolution is forced to take; None: torch chooses.
    """

    configuration: Configuration
    role: Role = "measurement"
    access: Access = "model"
    weights: Weights = "cold"
    algorithm: str | None = None


@dataclass(frozen=True)
class Plan:
    """Visits to make: rounds of jobs, each round in its own order."""

    rounds: tuple[tuple[PlannedVisit, ...], ...]

    @property
    def visits(self) -> int:
        """How many visits the plan holds."""
        return sum(len(r) for r in self.rounds)


@dataclass(frozen=True)
class VisitCounts:
    """The visits of one role that a device or board has of every configuration and setting."""

    outcomes: Mapping[tuple[str, str], Counter[Outcome]] = field(default_factory=dict)
    rejected: Mapping[tuple[str, str], Counter[Outcome]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, sort: VisitFilter, configurations: Collection[str]) -> VisitCounts:
        """Count what is stored of a sort, of these configurations (keys)."""
        return cls(
            store.outcomes(sort, configurations),
            store.outcomes(sort, configurations, rejected=True),
        )

    def counts(
        self, configuration: Configuration, settings: Mapping[str, Json]
    ) -> tuple[Counter[Outcome], int]:
        """Return a configuration's visits by outcome, and how many of the good were rejected."""
        key = configuration.key, relevant_setting(configuration.kind, settings)
        nothing: Counter[Outcome] = Counter()
        return self.outcomes.get(key, nothing), self.rejected.get(key, nothing)["ok"]

    def wanted(
        self,
        configuration: Configuration,
        settings: Mapping[str, Json],
        *,
        rounds: int,
        retry: bool = False,
    ) -> int:
        """Return how many visits are still wanted for `rounds` good ones.

        Rejected visits are repeated, a limited number of times.
        """
        outcomes, rejected = self.counts(configuration, settings)
        if retry:
            return max(0, rounds - outcomes["ok"] + rejected)
        if any(outcomes[outcome] for outcome in FINAL_OUTCOMES):
            return 0
        return max(0, rounds - outcomes["ok"] + min(rejected, MAX_REDONE))


def is_duplicated(configuration: Configuration, share: float) -> bool:
    """Return whether a configuration is among those measured twice over; by its key alone."""
    return int(configuration.key[:8], 16) < share * 2**32


def weight_states(
    store: Store, configurations: Iterable[Configuration], resident: float | None
) -> dict[Configuration, tuple[Weights, ...]]:
    """Return, for each configuration, the states its weights are in, the main one first.

    They are hot in workloads that stay in the L2, of which `resident` bytes keep their data, and
    cold in all others. What has no weights is called cold.
    """
    ordered = sorted(configurations, key=lambda c: (c.kind, c.key))
    if resident is None:
        return dict.fromkeys(ordered, ("cold",))
    weighty = [c.key for c in ordered if weight_bytes(c)]
    hot = store.called_in(weighty, ("at most", resident))
    cold = store.called_in(weighty, ("above", resident))
    return {c: _states(c, c.key in cold, c.key in hot) for c in ordered}


def _know_footprints(store: Store, resident: float | None) -> None:
    """Store what a pass of each workload touches, where that is requested and not known yet."""
    if resident is not None and (unknown := store.workloads_of_unknown_size()):
        store.save_touched_bytes({workload.key: touched_bytes(workload) for workload in unknown})


def _states(configuration: Configuration, cold: bool, hot: bool) -> tuple[Weights, ...]:
    if not hot or not weight_bytes(configuration):
        return ("cold",)
    return ("cold", "hot") if cold else ("hot",)


def plan(store: Store, board: Board, settings: Mapping[str, Json], request: PlanRequest) -> Plan:
    """Order what is pending: in random order, each round the reverse of the one before.

    Reversing makes a slow drift fall on all visits of a configuration alike. Duplicates lie among
    the measurements, in the same random order. Where an order is given, all rounds keep it, and
    duplicates are each round's last.
    """
    query = _PlanQuery(store, board, settings, request)
    if request.access == "model":
        wanted = _measurements(query)
        wanted |= _duplicates(query)
    else:
        wanted = _other_workloads(query)
    order = _ordered([job for job, count in wanted.items() if count], request)
    made = []
    for left in range(request.most_rounds, 0, -1):
        made.append(tuple(job for job in order if wanted[job] >= left))
        if request.configurations is None:
            order.reverse()
    return Plan(tuple(made))


def _ordered(jobs: Iterable[PlannedVisit], request: PlanRequest) -> list[PlannedVisit]:
    """Return jobs in the order that was given, duplicates last; without one, in random order."""
    order = list(jobs)
    random.Random(request.seed).shuffle(order)
    if request.configurations is not None:
        place = {key: number for number, key in enumerate(request.configurations)}
        order.sort(key=lambda job: (job.role == "duplicate", place[job.configuration.key]))
    return order


def interpolated(store: Store, device: str) -> set[str]:
    """Return what only whole generations call, at steps that are interpolated (keys).

    A device (slug) need not measure it.
    """
    swept = store.swept_keys()
    generations = [w for w in store.workloads(phase="generate") if w.key not in swept]
    called = {c.key for each in generations for c in each.occurrences()}
    found = called - benched_configurations(generations).keys()
    calls = store.calls_of(found, device)
    own = {each.key for each in generations}
    return found.difference(*(calls[key] for key in calls.keys() - own))


@dataclass(frozen=True)
class _PlanQuery:
    """A query of the store: the visits that a board lacks, in these settings."""

    store: Store
    board: Board
    settings: Mapping[str, Json]
    request: PlanRequest

    @property
    def algorithm(self) -> str | None:
        """The algorithm that the settings force; None: torch chooses."""
        return self.settings.get(ALGORITHM_SETTING)

    def sort(
        self, role: Role = "measurement", weights: Weights | None = None, *, here: bool = False
    ) -> VisitFilter:
        """Return which visits count; with `here`, those of this board whatever is requested."""
        board = self.board.uuid if here or self.request.this_board else None
        return VisitFilter(self.board.device, board, role, self.request.access, weights)

    def lacking(
        self, sort: VisitFilter, visits: int, among: ConfigurationFilter | None = None
    ) -> list[Configuration]:
        """Return what may lack visits of a sort: all that does, and some that failed."""
        request = self.request
        given = (
            ConfigurationFilter(request.kinds, request.configurations) if among is None else among
        )
        lack = MissingVisits(sort, visits, relevant_settings(self.settings, request.kinds))
        found = self.store.lacking(lack, replace(given, device=self.board.device))
        return found if given.keys is not None else [c for c in found if c.key not in self.between]

    @cached_property
    def between(self) -> set[str]:
        """What is interpolated on the board's device (keys)."""
        return interpolated(self.store, self.board.device)

    def called(self, configurations: Iterable[Configuration]) -> set[str]:
        """Return the keys of those that models call; none where a number of rounds is requested."""
        if self.request.rounds is not None:
            return set()
        keys = [c.key for c in configurations]
        return set().union(*self.store.calls_of(keys, self.board.device).values())

    def lacking_by_weights(
        self, visits: int, keys: Collection[str] | None, *, here: bool = False
    ) -> dict[Configuration, tuple[Weights, ...]]:
        """Return what may lack visits in one state of its weights, with the states they are in."""
        resident = self.request.resident_bytes
        _know_footprints(self.store, resident)
        given = ConfigurationFilter(
            self.request.kinds, keys, called=self.request.configurations is None
        )
        found = self.lacking(self.sort(weights="cold", here=here), visits, given)
        if resident is not None:
            given = replace(given, called_in=("at most", resident))
            found += self.lacking(self.sort(weights="hot", here=here), visits, given)
        return weight_states(self.store, found, resident)

    def seen_by_weights(
        self, configurations: Iterable[Configuration], *, here: bool = False
    ) -> dict[Weights, VisitCounts]:
        """Count the visits of configurations for each state of the weights."""
        keys = [c.key for c in configurations]
        states: tuple[Weights, ...] = ("cold", "hot")
        return {
            s: VisitCounts.of(self.store, self.sort(weights=s, here=here), keys) for s in states
        }


def _measurements(query: _PlanQuery) -> dict[PlannedVisit, int]:
    """Return the visits wanted of each configuration in each state of its weights."""
    request = query.request
    found = query.lacking_by_weights(request.most_rounds, request.configurations)
    seen = query.seen_by_weights(found)
    called = query.called(found)
    return {
        PlannedVisit(c, weights=state, algorithm=query.algorithm): seen[state].wanted(
            c, query.settings, rounds=request.rounds_of(c, called), retry=request.retry
        )
        for c, states in found.items()
        for state in states
    }


def _other_workloads(query: _PlanQuery) -> dict[PlannedVisit, int]:
    request, rounds = query.request, OTHER_WORKLOAD_ROUNDS
    found = query.lacking(query.sort(), rounds)
    seen = VisitCounts.of(query.store, query.sort(), [c.key for c in found])
    return {
        PlannedVisit(c, access=request.access, algorithm=query.algorithm): seen.wanted(
            c, query.settings, rounds=rounds, retry=request.retry
        )
        for c in found
    }


def _duplicates(query: _PlanQuery) -> dict[PlannedVisit, int]:
    """Return the duplicates wanted, each on the board that has or gets the measurement."""
    store, request, settings = query.store, query.request, query.settings
    if request.duplicates <= 0:
        return {}
    end = None if request.duplicates >= 1 else f"{math.ceil(request.duplicates * 2**32):08x}"
    given = ConfigurationFilter(request.kinds, request.configurations, keys_below=end)
    found = query.lacking(query.sort("duplicate"), request.most_rounds, given)
    keys = [c.key for c in found]
    called = query.called(found)
    here = VisitCounts.of(store, query.sort(here=True), keys)
    on_device = VisitCounts.of(store, query.sort(), keys)
    duplicated = VisitCounts.of(store, query.sort("duplicate"), keys)
    wanted = {}
    for configuration, states in weight_states(store, found, request.resident_bytes).items():
        if not is_duplicated(configuration, request.duplicates):
            continue
        outcomes, _ = here.counts(configuration, settings)
        rounds = request.rounds_of(configuration, called)
        anywhere = on_device.wanted(configuration, settings, rounds=rounds, retry=request.retry)
        if outcomes["ok"] or anywhere == rounds:
            algorithm = query.algorithm
            job = PlannedVisit(configuration, "duplicate", weights=states[0], algorithm=algorithm)
            wanted[job] = duplicated.wanted(configuration, settings, rounds=rounds)
    return wanted


def further_round(
    store: Store,
    board: Board,
    settings: Mapping[str, Json],
    coarse: Collection[str],
    request: PlanRequest,
) -> tuple[PlannedVisit, ...]:
    """Return one more visit of each of these configurations (keys), in the order of a plan.

    Those that have all the rounds there are, or have been rejected too often, are left out.
    """
    query = _PlanQuery(store, board, settings, request)
    given = request.configurations
    keys = set(coarse) if given is None else set(coarse) & set(given)
    found = query.lacking_by_weights(MAX_ROUNDS, keys, here=True)
    seen = query.seen_by_weights(found, here=True)
    jobs = [
        PlannedVisit(c, weights=states[0], algorithm=query.algorithm)
        for c, states in found.items()
        if seen[states[0]].wanted(c, settings, rounds=MAX_ROUNDS)
    ]
    return tuple(_ordered(jobs, request))
