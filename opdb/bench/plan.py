"""What a bench is asked for, the visits pending on a device, and further ones for precision."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from opdb.algorithms.names import Algorithm
from opdb.bench.session import current_settings
from opdb.bench.visit import VisitRequest
from opdb.derive.costs import ESTIMATOR
from opdb.derive.statistics import PRECISION, is_within, visit_deviation
from opdb.growth import benched_configurations
from opdb.kinds.registry import relevant_setting
from opdb.memory import touched_bytes, weight_bytes
from opdb.records import (
    ALGORITHM_SETTING,
    Board,
    Configuration,
    Cost,
    Json,
    Outcome,
    Quantity,
    Role,
    Weights,
)
from opdb.store import Store

ROUNDS = 2
"""Good visits wanted of a configuration of no model: two in different random rounds beat one long
one. Of what models call one is enough at first: further ones go where they narrow a model's sum."""

SPREAD_SHARE = 0.1
"""Share of the configurations that are visited twice where one visit each is wanted: by how far
their visits lie apart, all intervals are judged."""

MAX_ROUNDS = 4
"""Good visits of a configuration whose interval stays wider than requested, at most."""

MAX_REDONE = 2
"""Visits of a configuration made again because they were rejected, at most."""

SUM_PRECISION = 0.01
"""Half width of the 95 % interval of a model's sum that visits are made for where none is asked,
as a share of it: its sampling part alone."""

DUPLICATE_SHARE = 0.1
"""Share of the configurations that are measured once more, blind, to test stated intervals."""

STATES: tuple[Weights, ...] = ("cold", "hot")

FORCED_KIND = "conv2d"

FINAL_OUTCOMES: tuple[Outcome, ...] = ("unsupported", "out_of_memory", "error")
"""Outcomes that a repetition would not change; `retry` asks for it all the same."""


@dataclass(frozen=True)
class BenchRequest:
    """A request to bench: kinds (None: all) on a device, for at most a number of seconds.

    `this_board` asks what this very board lacks, whatever other boards of the device have.
    `rounds` good visits are wanted of each configuration, whatever its interval; where that is
    one, some are visited twice, so that there are intervals. None: one of what models call, and
    further ones until the sampling parts of their sums' 95 % intervals are within `sum_precision`.
    `precision` is the half width of the 95 % interval, as a share of the energy, that ends the
    rounds of any other configuration; `duplicates` the share of configurations measured twice over.
    `resident_bytes` is how much the L2 keeps from one pass to the next; None: as the device's size
    suggests.
    `configurations` (keys), where given, are all that is benched, and are visited in that order.
    `workloads` (keys), where given, are those whose sums are to be precise, as far as the board has
    measured them, and of whose calls host times are taken; None: all of which it has measured every
    operator, and all.
    `algorithms`, where given, are those that convolutions are to take, and nothing else is benched;
    what is measured so is kept apart from what torch chooses, and has no duplicates.
    `host_times` says whether host times of calls are taken beside visits: a CUDA graph needs none.
    """

    kinds: Collection[str] | None = None
    device: str | None = None
    max_s: float | None = None
    retry: bool = False
    this_board: bool = False
    rounds: int | None = ROUNDS
    precision: float = PRECISION
    sum_precision: float = SUM_PRECISION
    duplicates: float = DUPLICATE_SHARE
    resident_bytes: float | None = None
    configurations: Sequence[str] | None = None
    workloads: Collection[str] | None = None
    algorithms: tuple[Algorithm, ...] = ()
    host_times: bool = True
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))

    @property
    def settings(self) -> list[dict[str, Json]]:
        """The backend settings under each of the algorithms; the present ones where none is."""
        present = current_settings()
        return [{**present, **each.setting} for each in self.algorithms] or [present]

    def rounds_of(self, configuration: Configuration, called: Collection[str] = ()) -> int:
        rounds = self.rounds or (1 if configuration.key in called else ROUNDS)
        if is_duplicated(configuration, max(self.duplicates, SPREAD_SHARE)):
            return max(rounds, ROUNDS)
        return rounds


@dataclass(frozen=True)
class VisitCounts:
    """The visits of one role that a device or board has in some settings, by configuration."""

    settings: Mapping[str, Json]
    outcomes: Mapping[tuple[str, str], Counter[Outcome]]
    rejected: Mapping[tuple[str, str], Counter[Outcome]]

    def good(self, configuration: Configuration) -> int:
        return self.outcomes.get(self._key(configuration), Counter())["ok"]

    def wanted(self, configuration: Configuration, *, rounds: int, retry: bool = False) -> int:
        """Return how many visits are still wanted for `rounds` good ones."""
        key = self._key(configuration)
        outcomes: Counter[Outcome] = self.outcomes.get(key, Counter())
        rejected = self.rejected.get(key, Counter())["ok"]
        if retry:
            return max(0, rounds - outcomes["ok"] + rejected)
        if any(outcomes[outcome] for outcome in FINAL_OUTCOMES):
            return 0
        return max(0, rounds - outcomes["ok"] + min(rejected, MAX_REDONE))

    def _key(self, configuration: Configuration) -> tuple[str, str]:
        return configuration.key, relevant_setting(configuration.kind, self.settings)


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
    if unknown := store.workloads_of_unknown_size():
        store.save_touched_bytes({workload.key: touched_bytes(workload) for workload in unknown})
    weighty = [c.key for c in ordered if weight_bytes(c)]
    touched = store.touched_by(weighty)
    hot = {key for key, (least, _) in touched.items() if least <= resident}
    cold = {key for key, (_, most) in touched.items() if most > resident}
    return {
        c: (STATES if c.key in cold else ("hot",)) if c.key in hot else ("cold",) for c in ordered
    }


def _ordered(jobs: Iterable[VisitRequest], request: BenchRequest) -> list[VisitRequest]:
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
    calls = store.calls_of(configurations=found, device=device)
    own = {each.key for each in generations}
    return found.difference(*(calls[key] for key in calls.keys() - own))


# Further visits: of what is not yet as precise as asked, by itself or in sums.
#
# A model's sum is Σ n·c over its configurations: n calls of one, each of cost c. Where it is less
# precise than asked, the configurations that scatter most in it are visited once more. What all
# visits share (a board's gain, base power, transitions, the model error) no visit makes smaller.

Z95 = 1.96

HALVED = 0.5
"""How much of what a configuration adds to a sum's variance a second visit takes off."""


@dataclass(frozen=True)
class Sum:
    """One sum, of times or of energies, over a model's configurations.

    `parts` are what the calls of each configuration (key) add to it, in seconds or joules, and half
    the width of the sampling part of that one's 95 % interval.
    """

    parts: Mapping[str, tuple[float, float]]

    @property
    def value(self) -> float:
        return math.fsum(value for value, _ in self.parts.values())

    @property
    def half_width(self) -> float:
        """The sampling part of its 95 % interval, as a share of it."""
        return math.sqrt(math.fsum(width**2 for _, width in self.parts.values())) / self.value

    def coarse(self, precision: float, among: Collection[str]) -> set[str]:
        """Return which of some configurations (keys) keep the sum from a precision, a share of it.

        They are the fewest that bring it there with one visit more each; all where none do.
        """
        excess = (self.half_width**2 - precision**2) * self.value**2
        widths = {key: width for key, (_, width) in self.parts.items() if key in among and width}
        found = set()
        for key in sorted(widths, key=lambda key: (-widths[key], key)):
            if excess <= 0:
                break
            excess -= HALVED * widths[key] ** 2
            found.add(key)
        return found


def takes_time(cost: Cost) -> bool:
    return cost.time_s is not None and cost.time_s.mean > 0


def sampling_width(quantity: Quantity, visits: int) -> float:
    """Return half the width of the sampling part of a quantity's 95 % interval; 0 without one."""
    return Z95 * (visit_deviation(quantity.half_width, visits) or 0.0) / math.sqrt(visits)


def sums_of(calls: Iterable[Mapping[str, int]], costs: Mapping[str, Cost]) -> list[Sum]:
    """Return the sums of times and of energies over each of these calls, by configuration (key).

    What has no cost, or takes the device no time (a view, an index), is in no sum.
    """
    sums = []
    for counts in calls:
        known = [(n, costs[key]) for key, n in counts.items() if key in costs]
        for name in ("time_s", "energy_j"):
            parts = {
                cost.configuration: (n * one.mean, n * sampling_width(one, cost.visits))
                for n, cost in known
                if takes_time(cost) and (one := getattr(cost, name)) is not None
            }
            if parts:
                sums.append(Sum(parts))
    return sums


@dataclass(frozen=True)
class SumsReached:
    """How precise models' sums are: the sampling part of their 95 % intervals, as shares.

    Of `sums`, times and energies of workloads, `within` are as precise as `asked`; `half_width` is
    the median, `largest` the largest.
    """

    asked: float
    sums: int
    within: int
    half_width: float
    largest: float

    @classmethod
    def of(cls, sums: Sequence[Sum], asked: float) -> SumsReached | None:
        """Sum up how precise sums are; None where there are none."""
        widths = [each.half_width for each in sums]
        if not widths:
            return None
        within = sum(width <= asked for width in widths)
        return cls(asked, len(widths), within, statistics.median(widths), max(widths))


def benched_in(store: Store, board: Board, request: BenchRequest) -> list[Benched]:
    return [Benched(store, board, request, settings) for settings in request.settings]


def left(store: Store, board: Board, request: BenchRequest) -> list[VisitRequest]:
    """Return the visits that a request leaves to a board, under all settings, round by round.

    They are those that are pending, else one more of each that is not as precise as asked.
    """
    benched = benched_in(store, board, request)
    found = []
    for number, rounds in enumerate(zip(*(each.plan() for each in benched), strict=True)):
        jobs = [job for each in rounds for job in each]
        if len(benched) > 1 and request.configurations is None:
            random.Random(request.seed + number).shuffle(jobs)
        found += jobs
    return found or [job for each in benched for job in each.further_round(each.coarse())]


@dataclass(frozen=True)
class Benched:
    store: Store
    board: Board
    request: BenchRequest
    settings: Mapping[str, Json]

    def plan(self) -> list[list[VisitRequest]]:
        """Return what is pending in rounds, in random order, each the reverse of the one before.

        Reversing makes a slow drift fall on all visits of a configuration alike. Duplicates lie
        among the measurements, in the same random order. Where an order is given, all rounds keep
        it, and duplicates are each round's last.
        """
        request, wanted = self.request, self._wanted()
        order = _ordered([job for job, count in wanted.items() if count], request)
        made = []
        for left in range(max(request.rounds or ROUNDS, ROUNDS), 0, -1):
            made.append([job for job in order if wanted[job] >= left])
            if request.configurations is None:
                order.reverse()
        return made

    def further_round(self, coarse: Collection[str]) -> list[VisitRequest]:
        """Return one more visit of each of these configurations (keys), in the order of a plan.

        Those that have all the rounds there are, or have been rejected too often, are left out.
        """
        given = self.request.configurations
        keys = set(coarse) if given is None else set(coarse) & set(given)
        among = self._among(keys)
        seen = {state: self._seen(among, weights=state, here=True) for state in STATES}
        jobs = [
            VisitRequest(c, weights=states[0], algorithm=self._algorithm)
            for c, states in among.items()
            if seen[states[0]].wanted(c, rounds=MAX_ROUNDS)
        ]
        return _ordered(jobs, self.request)

    @property
    def _algorithm(self) -> str | None:
        return self.settings.get(ALGORITHM_SETTING)

    def _among(self, keys: Collection[str] | None) -> dict[Configuration, tuple[Weights, ...]]:
        request = self.request
        called = request.configurations is None
        found = self.store.configurations_among(
            request.kinds, keys, called=called, device=self.board.device
        )
        if keys is None:
            found = [c for c in found if c.key not in self._between]
        return weight_states(self.store, found, request.resident_bytes)

    def _seen(
        self,
        configurations: Iterable[Configuration],
        role: Role = "measurement",
        weights: Weights | None = None,
        *,
        here: bool = False,
    ) -> VisitCounts:
        """Return the visits of a sort; with `here`, those of this board whatever is requested."""
        board = self.board.uuid if here or self.request.this_board else None
        count = partial(
            self.store.outcomes,
            self.board.device,
            [c.key for c in configurations],
            board=board,
            role=role,
            weights=weights,
        )
        return VisitCounts(self.settings, count(), count(rejected=True))

    @cached_property
    def _between(self) -> set[str]:
        return interpolated(self.store, self.board.device)

    def _wanted(self) -> dict[VisitRequest, int]:
        request, among = self.request, self._among(self.request.configurations)
        called: set[str] = set()
        if request.rounds is None:
            calls = self.store.calls_of(
                configurations=[c.key for c in among], device=self.board.device
            )
            called = called.union(*calls.values())
        rounds = {c: request.rounds_of(c, called) for c in among}
        seen = {state: self._seen(among, weights=state) for state in STATES}
        wanted = {
            VisitRequest(c, weights=state, algorithm=self._algorithm): seen[state].wanted(
                c, rounds=rounds[c], retry=request.retry
            )
            for c, states in among.items()
            for state in states
        }
        among = {c: s for c, s in among.items() if is_duplicated(c, request.duplicates)}
        here, on_device = self._seen(among, here=True), self._seen(among)
        duplicated = self._seen(among, "duplicate")
        for c, states in among.items():
            anywhere = on_device.wanted(c, rounds=rounds[c], retry=request.retry)
            if here.good(c) or anywhere == rounds[c]:
                job = VisitRequest(c, "duplicate", weights=states[0], algorithm=self._algorithm)
                wanted[job] = duplicated.wanted(c, rounds=rounds[c])
        return wanted

    @cached_property
    def costs(self) -> list[Cost]:
        request = self.request
        asked = self.store.configurations_among(request.kinds, request.configurations)
        return self._costs_of(asked)

    @cached_property
    def calls_of_models(self) -> dict[str, dict[str, int]]:
        """How often each workload calls what has a cost; none where rounds are requested."""
        if self.request.rounds is not None:
            return {}
        return self.store.calls_of(
            configurations=[c.configuration for c in self.costs], device=self.board.device
        )

    @cached_property
    def called(self) -> set[str]:
        return set().union(*self.calls_of_models.values())

    @cached_property
    def sums(self) -> list[Sum]:
        """The sums that are to be precise and to which these costs contribute.

        They are those of the workloads asked for, as far as the board has measured them. Where none
        is asked for by name, a workload counts once the board has measured (or failed to measure)
        all of it: what else it calls would be missing in its sum, and a part of a sum need not be
        as precise as the whole.
        """
        calling, named = set(self.calls_of_models), self.request.workloads
        calls = self.store.calls_of(workloads=calling if named is None else calling & set(named))
        keys = set().union(*calls.values())
        called = self.store.configurations_among(None, keys)
        measured = {cost.configuration: cost for cost in self._costs_of(called)}
        complete = [
            counts
            for counts in calls.values()
            if named is not None or counts.keys() - measured.keys() <= self._between
        ]
        return sums_of(complete, measured)

    def coarse(self) -> set[str]:
        """Return the configurations (keys) that are to be visited once more.

        None of them takes the device no time: further visits would tell nothing of it.
        """
        request, found = self.request, set()
        costs = [cost for cost in self.costs if takes_time(cost)]
        for cost in costs:
            if cost.configuration in self.called:
                is_wide = cost.time_s is not None and cost.time_s.half_width is None
            else:
                is_wide = not is_within(cost, request.precision)
            if is_wide:
                found.add(cost.configuration)
        left = {cost.configuration for cost in costs if cost.visits < MAX_ROUNDS}
        return found.union(*(each.coarse(request.sum_precision, left) for each in self.sums))

    def _costs_of(self, configurations: Iterable[Configuration]) -> list[Cost]:
        setting_of = {c.key: relevant_setting(c.kind, self.settings) for c in configurations}
        return [
            cost
            for key, costs in self.store.costs(self.board.uuid, list(setting_of)).items()
            for cost in costs
            if cost.setting == setting_of[key] and cost.estimator == ESTIMATOR
        ]
