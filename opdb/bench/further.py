"""Further visits of a bench: of what is not yet as precise as asked, by itself or in sums."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from opdb.bench.allocation import Sum, sums_of, takes_time, wanted
from opdb.bench.plan import MAX_ROUNDS, PlannedVisit, further_round, interpolated
from opdb.bench.request import BenchRequest
from opdb.derive.costs import ESTIMATOR
from opdb.derive.precision import is_within
from opdb.records import Board, Configuration, Cost, Json
from opdb.settings import relevant_setting
from opdb.store import ConfigurationFilter, Store

RECHECKED_SHARE = 0.05
"""Share of what models call that is visited once more beside what their sums want: were only the
latter visited late, what is late and what is scattered would look alike."""


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


def further(
    store: Store, board: Board, request: BenchRequest, number: int
) -> tuple[PlannedVisit, ...]:
    """Return the visits of a further round: what this board has not as precise as asked."""
    if request.access != "model":
        return ()
    asked = replace(request.planned, seed=request.seed + number)
    found: list[PlannedVisit] = []
    for settings in request.settings:
        coarse = Benched(store, board, request, settings).coarse()
        found += further_round(store, board, settings, coarse, asked)
    return tuple(found)


def sums_to_reach(store: Store, board: Board, request: BenchRequest) -> list[Sum]:
    """Return the sums that a bench was to make precise, as far as they are measured."""
    return [
        each
        for settings in request.settings
        for each in Benched(store, board, request, settings).sums
    ]


@dataclass(frozen=True)
class Benched:
    """What a board has of what a bench is asked for, in some backend settings."""

    store: Store
    board: Board
    request: BenchRequest
    settings: Mapping[str, Json]

    @cached_property
    def costs(self) -> list[Cost]:
        """The board's costs of what workloads call of the kinds asked for."""
        kinds = self.request.planned.kinds
        asked = ConfigurationFilter(kinds, self.request.configurations)
        return self._costs_of(self.store.configurations_among(asked))

    @cached_property
    def calls_of_models(self) -> dict[str, dict[str, int]]:
        """How often each workload calls what has a cost; none where rounds are requested."""
        if self.request.rounds is not None:
            return {}
        return self.store.calls_of([c.configuration for c in self.costs], self.board.device)

    @cached_property
    def called(self) -> set[str]:
        """The configurations (keys) that workloads call."""
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
        calls = self.store.calls_in(calling if named is None else calling & set(named))
        keys = set().union(*calls.values())
        called = self.store.configurations_among(ConfigurationFilter(None, keys))
        measured = {cost.configuration: cost for cost in self._costs_of(called)}
        if named is None:
            calls = self.whole(calls, measured)
        kinds = {c.key: c.kind for c in called}
        repeated = self.store.repeated(self.board.device)
        return sums_of(calls, measured, kinds, self.request.wholes, repeated)

    def whole(
        self, calls: Mapping[str, dict[str, int]], measured: Collection[str]
    ) -> dict[str, dict[str, int]]:
        """Return the calls of the workloads of which all that is benched has been measured."""
        missing = {key: counts.keys() - set(measured) for key, counts in calls.items()}
        between = interpolated(self.store, self.board.device) if any(missing.values()) else set()
        return {key: calls[key] for key, keys in missing.items() if keys <= between}

    def coarse(self) -> set[str]:
        """Return the configurations (keys) that are to be visited once more.

        None of them takes the device no time: further visits would tell nothing of it.
        """
        costs = [cost for cost in self.costs if takes_time(cost)]
        coarse = {
            cost.configuration
            for cost in costs
            if cost.configuration not in self.called and not is_within(cost, self.request.precision)
        }
        visits = {cost.configuration: cost.visits for cost in costs}
        return coarse | self._wanted_by_sums(visits)

    def _wanted_by_sums(self, visits: Mapping[str, int]) -> set[str]:
        """Return what the sums want visited once more, and a few of what they do not beside it.

        `visits` are those made of each configuration (key).
        """
        request = self.request
        summed = visits.keys() & set().union(*(each.counts for each in self.sums))
        spent = self.store.spent(self.board.device, self.board.uuid)
        took_s = {each.configuration: each.seconds for each in spent}
        seconds = {key: took_s[key] / visits[key] for key in summed}
        more = {
            key
            for key, number in wanted(self.sums, request.sum_precision, seconds, MAX_ROUNDS).items()
            if number > visits[key]
        }
        if more:
            others = sorted(summed - more)
            count = math.ceil(RECHECKED_SHARE * len(others))
            more |= set(random.Random(request.seed).sample(others, count))
        return more

    def _costs_of(self, configurations: Iterable[Configuration]) -> list[Cost]:
        """Return the board's costs of configurations in these settings."""
        setting_of = {c.key: relevant_setting(c.kind, self.settings) for c in configurations}
        return [
            cost
            for key, costs in self.store.costs(self.board.uuid, list(setting_of)).items()
            for cost in costs
            if cost.setting == setting_of[key] and cost.estimator == ESTIMATOR
        ]
