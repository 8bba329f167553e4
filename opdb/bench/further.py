"""Further visits of a bench: of what is not yet as precise as asked, by itself or in sums."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
        costs = costs_of(store, board, request, settings)
        coarse = _coarse(store, board, request, costs, settings)
        found += further_round(store, board, settings, coarse, asked)
    return tuple(found)


def _coarse(
    store: Store,
    board: Board,
    request: BenchRequest,
    costs: Sequence[Cost],
    settings: Mapping[str, Json],
) -> set[str]:
    """Return the configurations (keys) that are to be visited once more.

    None of them takes the device no time: further visits would tell nothing of it.
    """
    costs = [cost for cost in costs if takes_time(cost)]
    called = set().union(*calls_of_models(store, board, request, costs).values())
    coarse = {
        cost.configuration
        for cost in costs
        if cost.configuration not in called and not is_within(cost, request.precision)
    }
    sums = _sums_of(store, board, request, costs, settings)
    visits = {cost.configuration: cost.visits for cost in costs}
    summed = visits.keys() & set().union(*(each.counts for each in sums))
    spent = {each.configuration: each.seconds for each in store.spent(board.device, board.uuid)}
    seconds = {key: spent[key] / visits[key] for key in summed}
    more = {
        key
        for key, number in wanted(sums, request.sum_precision, seconds, MAX_ROUNDS).items()
        if number > visits[key]
    }
    if more:
        others = sorted(summed - more)
        count = math.ceil(RECHECKED_SHARE * len(others))
        more |= set(random.Random(request.seed).sample(others, count))
    return coarse | more


def calls_of_models(
    store: Store, board: Board, request: BenchRequest, costs: Sequence[Cost]
) -> dict[str, dict[str, int]]:
    """Return how often each workload calls what has a cost; none where rounds are requested."""
    if request.rounds is not None:
        return {}
    return store.calls_of([cost.configuration for cost in costs], board.device)


def _sums_of(
    store: Store,
    board: Board,
    request: BenchRequest,
    costs: Sequence[Cost],
    settings: Mapping[str, Json],
) -> list[Sum]:
    """Return the sums that are to be precise and to which these costs of the board contribute.

    They are those of the workloads asked for, as far as the board has measured them. Where none is
    asked for by name, a workload counts once the board has measured (or failed to measure) all of
    it: what else it calls would be missing in its sum, and a part of a sum need not be as precise
    as the whole.
    """
    calling = set(calls_of_models(store, board, request, costs))
    if request.workloads is not None:
        calling &= set(request.workloads)
    calls = store.calls_in(calling)
    called = store.configurations_among(ConfigurationFilter(None, set().union(*calls.values())))
    measured = {cost.configuration: cost for cost in _in_settings(store, board, called, settings)}
    if request.workloads is None:
        calls = _whole(store, board, calls, measured)
    return sums_of(calls, measured, {c.key: c.kind for c in called})


def _whole(
    store: Store,
    board: Board,
    calls: Mapping[str, dict[str, int]],
    measured: Collection[str],
) -> dict[str, dict[str, int]]:
    """Return the calls of the workloads of which all that is benched has been measured."""
    missing = {key: counts.keys() - set(measured) for key, counts in calls.items()}
    between = interpolated(store, board.device) if any(missing.values()) else set()
    return {key: calls[key] for key, keys in missing.items() if keys <= between}


def sums_to_reach(store: Store, board: Board, request: BenchRequest) -> list[Sum]:
    """Return the sums that a bench was to make precise, as far as they are measured."""
    found: list[Sum] = []
    for settings in request.settings:
        costs = costs_of(store, board, request, settings)
        found += _sums_of(store, board, request, costs, settings)
    return found


def costs_of(
    store: Store, board: Board, request: BenchRequest, settings: Mapping[str, Json]
) -> list[Cost]:
    """Return the board's costs of what workloads call of these kinds, in some settings."""
    kinds = request.planned.kinds
    benched = store.configurations_among(ConfigurationFilter(kinds, request.configurations))
    return _in_settings(store, board, benched, settings)


def _in_settings(
    store: Store,
    board: Board,
    configurations: Iterable[Configuration],
    settings: Mapping[str, Json],
) -> list[Cost]:
    """Return the board's costs of configurations in some settings."""
    wanted = {c.key: relevant_setting(c.kind, settings) for c in configurations}
    return [
        cost
        for key, costs in store.costs(board.uuid, list(wanted)).items()
        for cost in costs
        if cost.setting == wanted[key] and cost.estimator == ESTIMATOR
    ]
