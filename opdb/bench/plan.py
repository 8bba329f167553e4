"""What is pending on a device, in which order, and what it will cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opdb.derive.rejection import REJECTED
from opdb.footprint import keeps_weights_hot, weight_bytes
from opdb.records import Access, Board, Configuration, Json, Outcome, Role, Weights
from opdb.settings import relevant_setting
from opdb.store import Store

ROUNDS = 2
"""Good visits wanted of each configuration: two in different random rounds beat one long one."""

OTHER_WORKLOAD_ROUNDS = 1
"""Good visits wanted under a workload other than a model's: they differ by more than visits do."""

MAX_ROUNDS = 4
"""Good visits of a configuration whose interval stays wider than asked, at most."""

MAX_REDONE = 2
"""Visits of a configuration made again because they were rejected, at most."""

DUPLICATE_SHARE = 0.1
"""Share of the configurations that are measured once more, blind, to test stated intervals."""

FINAL_OUTCOMES: tuple[Outcome, ...] = ("unsupported", "out_of_memory", "error")
"""Outcomes that a repetition would not change; `retry` asks for it all the same."""


@dataclass(frozen=True)
class PlanRequest:
    """What to plan: kinds (None: all), in which random order, with which share of duplicates.

    `this_board` asks what this very board lacks, whatever other boards of the device have;
    `access` what calls are to find in the caches; `resident_bytes` is how much the L2 keeps from
    one pass to the next. There are duplicates of a model's calls alone. `configurations` (keys)
    are all that is planned where they are given, and rounds visit them in that order: where time is
    short, the first of them are what it was spent on.
    """

    kinds: Collection[str] | None = None
    seed: int = 0
    retry: bool = False
    this_board: bool = False
    duplicates: float = DUPLICATE_SHARE
    access: Access = "model"
    resident_bytes: float | None = None
    configurations: Sequence[str] | None = None


@dataclass(frozen=True)
class Job:
    """One visit to make: a configuration, the role in which it is stored, and what calls find."""

    configuration: Configuration
    role: Role = "measurement"
    access: Access = "model"
    weights: Weights = "cold"


@dataclass(frozen=True)
class Plan:
    """Visits to make: rounds of jobs, each round in its own order."""

    rounds: tuple[tuple[Job, ...], ...]

    @property
    def visits(self) -> int:
        """How many visits the plan holds."""
        return sum(len(r) for r in self.rounds)


@dataclass(frozen=True)
class Seen:
    """The visits of one role that a device or board has of every configuration and setting."""

    outcomes: Mapping[tuple[str, str], Counter[Outcome]] = field(default_factory=dict)
    rejected: Mapping[tuple[str, str], Counter[Outcome]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        store: Store,
        board: Board,
        *,
        this_board: bool,
        role: Role = "measurement",
        access: Access = "model",
        weights: Weights | None = None,
    ) -> Seen:
        """Count what is stored of a board, or of all boards of its device."""
        uuid = board.uuid if this_board else None

        def count(flag: str | None) -> dict[tuple[str, str], Counter[Outcome]]:
            return store.visit_outcomes(
                board.device, board=uuid, role=role, access=access, weights=weights, flag=flag
            )

        return cls(count(None), count(REJECTED))

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
        rounds: int = ROUNDS,
        retry: bool = False,
    ) -> int:
        """Return how many visits are still wanted for so many good ones.

        Rejected visits are made up for, but no more than so often.
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


def called(
    store: Store, kinds: Collection[str] | None, configurations: Collection[str] | None = None
) -> list[Configuration]:
    """Return the configurations of these kinds that a workload calls, or that have these keys.

    What is named by its key need not be called by any workload.
    """
    wanted = store.usage().keys() if configurations is None else set(configurations)
    return [c for c in store.configurations(kinds) if c.key in wanted]


def weight_states(store: Store, request: PlanRequest) -> dict[Configuration, tuple[Weights, ...]]:
    """Return, for each configuration planned, the states its weights are in, the main one first.

    They are hot in workloads that stay in the L2, of which `resident_bytes` keep their data, and
    cold in all others. What has no weights is called cold.
    """
    hot: set[str] = set()
    cold: set[str] = set()
    for workload in store.workloads():
        state = hot if keeps_weights_hot(workload, request.resident_bytes) else cold
        state |= {c.key for c in workload.occurrences()}
    planned = called(store, request.kinds, request.configurations)
    return {c: _states(c, c.key in cold, c.key in hot) for c in planned}


def _states(configuration: Configuration, cold: bool, hot: bool) -> tuple[Weights, ...]:
    if not hot or not weight_bytes(configuration):
        return ("cold",)
    return ("cold", "hot") if cold else ("hot",)


def plan(store: Store, board: Board, settings: Mapping[str, Json], request: PlanRequest) -> Plan:
    """Order what is pending: each round in random order, the second the first's reverse.

    Reversing makes a slow drift fall on both visits of a configuration alike. Duplicates lie among
    the measurements, in the same random order. Where an order is given, both rounds keep it, and
    duplicates are each round's last.
    """
    if request.access == "model":
        wanted = _measurements(store, board, settings, request)
        wanted |= _duplicates(store, board, settings, request)
    else:
        wanted = _other_workloads(store, board, settings, request)
    order = _ordered([job for job, count in wanted.items() if count], request)
    first = tuple(job for job in order if wanted[job] >= ROUNDS)
    if request.configurations is None:
        order.reverse()
    return Plan((first, tuple(order)))


def _ordered(jobs: Iterable[Job], request: PlanRequest) -> list[Job]:
    """Return jobs in the order that was given, duplicates last; without one, in random order."""
    order = list(jobs)
    random.Random(request.seed).shuffle(order)
    if request.configurations is not None:
        place = {key: number for number, key in enumerate(request.configurations)}
        order.sort(key=lambda job: (job.role == "duplicate", place[job.configuration.key]))
    return order


def _measurements(
    store: Store, board: Board, settings: Mapping[str, Json], request: PlanRequest
) -> dict[Job, int]:
    """Return the visits wanted of each configuration in each state of its weights."""
    seen = _seen_by_weights(store, board, this_board=request.this_board)
    found = weight_states(store, request)
    return {
        Job(c, weights=state): seen[state].wanted(c, settings, retry=request.retry)
        for c, states in found.items()
        for state in states
    }


def _seen_by_weights(store: Store, board: Board, *, this_board: bool) -> dict[Weights, Seen]:
    states: tuple[Weights, ...] = ("cold", "hot")
    return {s: Seen.of(store, board, this_board=this_board, weights=s) for s in states}


def _other_workloads(
    store: Store, board: Board, settings: Mapping[str, Json], request: PlanRequest
) -> dict[Job, int]:
    access = request.access
    seen = Seen.of(store, board, this_board=request.this_board, access=access)
    rounds = OTHER_WORKLOAD_ROUNDS
    return {
        Job(c, access=access): seen.wanted(c, settings, rounds=rounds, retry=request.retry)
        for c in called(store, request.kinds, request.configurations)
    }


def _duplicates(
    store: Store, board: Board, settings: Mapping[str, Json], request: PlanRequest
) -> dict[Job, int]:
    """Return the duplicates wanted, each on the board that has or gets the measurement."""
    here = Seen.of(store, board, this_board=True)
    on_device = Seen.of(store, board, this_board=request.this_board)
    duplicated = Seen.of(store, board, this_board=request.this_board, role="duplicate")
    wanted = {}
    found = weight_states(store, request)
    for configuration, states in found.items():
        if not is_duplicated(configuration, request.duplicates):
            continue
        outcomes, _ = here.counts(configuration, settings)
        anywhere = on_device.wanted(configuration, settings, retry=request.retry)
        if outcomes["ok"] or anywhere == ROUNDS:
            job = Job(configuration, "duplicate", weights=states[0])
            wanted[job] = duplicated.wanted(configuration, settings)
    return wanted


def further_round(
    store: Store,
    board: Board,
    settings: Mapping[str, Json],
    coarse: Collection[str],
    request: PlanRequest,
) -> tuple[Job, ...]:
    """Return one more visit of each of these configurations (keys), in the order of a plan.

    Those that have all the rounds there are, or have been rejected too often, are left out.
    """
    seen = _seen_by_weights(store, board, this_board=True)
    found = weight_states(store, request)
    jobs = [
        Job(c, weights=states[0])
        for c, states in found.items()
        if c.key in coarse and seen[states[0]].wanted(c, settings, rounds=MAX_ROUNDS)
    ]
    return tuple(_ordered(jobs, request))
