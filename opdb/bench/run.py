"""A campaign of operator visits: everything that is pending, saved visit by visit."""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from opdb.algorithms.names import Algorithm
from opdb.bench import forced
from opdb.bench.allocation import SUM_PRECISION, Sum, sums_of, takes_time, wanted
from opdb.bench.board import ensure_board_calibration, trusting
from opdb.bench.calibrate import calibrate, recent_campaign
from opdb.bench.host import MOMENTS, Moments, host_visits, settle
from opdb.bench.plan import (
    DUPLICATE_SHARE,
    MAX_ROUNDS,
    ROUNDS,
    Plan,
    PlannedVisit,
    PlanRequest,
    further_round,
    interpolated,
    plan,
)
from opdb.bench.platform import Platform, current_settings, detect, open_meter
from opdb.bench.rounds import Budget, Progress, Rounds, Tally
from opdb.bench.session import Session, open_session
from opdb.bench.share import Share
from opdb.bench.turns import ALONE, Turns
from opdb.derive.costs import ESTIMATOR
from opdb.derive.precision import PRECISION, Reached, is_within, reached
from opdb.footprint import resident_bytes
from opdb.growth import benched_calls
from opdb.records import (
    Access,
    Board,
    Call,
    Campaign,
    Configuration,
    Cost,
    Json,
    Workload,
)
from opdb.settings import relevant_setting
from opdb.store import Claims, ConfigurationFilter, Store
from opdb.store.deriving import derive_costs
from opdb.units import plural

RECHECKED_SHARE = 0.05
"""Share of what models call that is visited once more beside what their sums want: were only the
latter visited late, what is late and what is scattered would look alike."""

PRECISE = ("cuda",)
"""Types of devices on which visits repeat well enough for the sums of models to be made precise."""

WORKERS = "workers"
"""In a campaign's environment: how many workers measured on its host at once, where several."""


SOFTWARE = ("driver", "cuda", "cudnn", "torch")
"""What of a campaign's environment decides which kernels run, and how fast."""


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


@dataclass
class BenchResult:
    """The work of a campaign: visits by outcome, what they cost, how precise the costs are now.

    `reached` is of operators, `sums` of the models whose sums were to be precise. `cost_s` is
    device time, `typical_cost_s` its median over the configurations visited. `rejected` counts
    visits kept and not counted, `reached` and `sums` are None where nothing was to do. `refused`
    counts the configurations that an algorithm could not run, by its name and why. `elsewhere` are
    the configurations (keys) that other workers were at when they came up.
    """

    campaign: str | None
    device: str
    board: str
    outcomes: Counter[str] = field(default_factory=Counter)
    configurations: int = 0
    duplicates: int = 0
    anchors: int = 0
    rejected: int = 0
    cost_s: float = 0.0
    typical_cost_s: float | None = None
    elapsed_s: float = 0.0
    stopped: str | None = None
    reached: Reached | None = None
    sums: SumsReached | None = None
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    elsewhere: frozenset[str] = frozenset()


@contextmanager
def campaign(device: str | None, store: Store, workers: int = 1) -> Iterator[Session]:
    """Open a calibrated campaign on a device and save it; the meter is closed at the end.

    Where several workers measure on the host at once, the campaign's environment says how many.

    Raises:
        CannotMeasureError: there is no such device, or it cannot be metered where it must.
    """
    platform = detect(device)
    if workers > 1:
        environment = {**platform.environment, WORKERS: str(workers)}
        platform = replace(platform, environment=environment)
    meter = open_meter(platform)
    session = open_session(platform, meter)
    try:
        _freeze()
        session = trusting(session, ensure_board_calibration(session, store))
        session = session.calibrated(calibrate(session, recent_campaign(session, store)))
        store.save_campaign(session.campaign)
        yield session
    except RuntimeError:  # torch's: what spoils a context may come up anywhere after it
        session.check_alive()
        raise
    finally:
        gc.unfreeze()
        meter.close()


def changed(before: Campaign, now: Campaign) -> str | None:
    """Say what of the software is another in a board's campaign than in the one before it.

    Costs are then derived from visits under both. None where nothing is.
    """
    moved = [
        f"{name} {before.environment.get(name)} before, {now.environment.get(name)} now"
        for name in SOFTWARE
        if before.environment.get(name) != now.environment.get(name)
    ]
    if not moved:
        return None
    return (
        f"{', '.join(moved)}: costs of this board rest on what was measured under both. A database "
        "of its own keeps them apart, and opdb compare holds one against the other"
    )


def _freeze() -> None:
    """Let collecting between visits look at what they make alone.

    After the first call alone it still took 41 of a visit's 500 ms on an H200's host (cProfile).
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class BenchRequest:
    """A request to bench: kinds (None: all) on a device, for at most a number of seconds.

    `this_board` asks what this very board lacks, whatever other boards of the device have.
    `rounds` good visits are wanted of each configuration, whatever its interval; where that is
    one, some are visited twice, so that there are intervals. None: one of what models call, and
    further ones until the sampling parts of their sums' 95 % intervals are within `sum_precision`.
    `precision` is the half width of the 95 % interval, as a share of the energy, that ends the
    rounds of any other configuration; `duplicates` the share of configurations measured twice over.
    `access` is what calls find in the caches; no cost rests on any but a model's. `resident_bytes`
    is how much the L2 keeps from one pass to the next; None: as the device's size suggests.
    `configurations` (keys), where given, are all that is benched, and are visited in that order.
    `workloads` (keys), where given, are those whose sums are to be precise, as far as the board has
    measured them, and of whose calls host times are taken; None: all of which it has measured every
    operator, and all.
    `algorithms`, where given, are those that convolutions are to take, and nothing else is benched;
    what is measured so is kept apart from what torch chooses, and has no duplicates.
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
    access: Access = "model"
    resident_bytes: float | None = None
    configurations: Sequence[str] | None = None
    workloads: Collection[str] | None = None
    algorithms: tuple[Algorithm, ...] = ()
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))

    @property
    def settings(self) -> list[dict[str, Json]]:
        """The backend settings under each of the algorithms; the present ones where none is."""
        present = current_settings()
        return [{**present, **each.setting} for each in self.algorithms] or [present]

    @property
    def planned(self) -> PlanRequest:
        """The part of it that concerns the plan."""
        return PlanRequest(
            kinds={forced.KIND} if self.algorithms else self.kinds,
            seed=self.seed,
            retry=self.retry,
            this_board=self.this_board,
            duplicates=0.0 if self.algorithms else self.duplicates,
            rounds=self.rounds,
            access=self.access,
            resident_bytes=self.resident_bytes,
            configurations=self.configurations,
        )


def bench(
    store: Store, request: BenchRequest, progress: Progress, turns: Turns = ALONE
) -> BenchResult:
    """Take the host times that are lacking, visit what is pending, derive the board's costs.

    Workers that share the database share what is pending: each claims what it comes to. `turns`
    are those of workers on this host.

    Raises:
        CannotMeasureError: no device, or it stopped answering; what was finished is saved.
    """
    budget = Budget(request.max_s)
    platform = detect(request.device)
    board = platform.board
    forced.check_algorithms(request.algorithms, platform)
    request = _fitted(request, platform)
    result = BenchResult(None, platform.device.slug, board.uuid)
    # A list is its device's, and the device's boards share it, or a board's own.
    scope = board.uuid if request.this_board else board.device
    with Claims(store, scope, board.uuid) as claims:
        share = Share(claims)
        todo = share.unclaimed(_planned(store, board, request))
        unheard = _without_host_times(store, platform, request)
        if not todo.visits:
            derive_costs(store, board.uuid)  # a bench that was killed has not come to it
        if todo.visits or unheard or _further(store, board, request, 0):
            _Bench(store, request, platform, share, budget, progress).run(
                todo, unheard, turns, result
            )
        else:
            with turns.in_turn():
                pass  # the others wait for everybody
        result.elsewhere = frozenset(share.missed)
    if request.access == "model" and result.campaign is not None:
        result.reached = _reached(store, board, request, result)
        result.sums = SumsReached.of(_sums(store, board, request), request.sum_precision)
    return result


def pending(store: Store, platform: Platform, request: BenchRequest) -> Plan:
    """Return the visits that a bench of this request would begin with on a platform."""
    return _planned(store, platform.board, _fitted(request, platform))


def _fitted(request: BenchRequest, platform: Platform) -> BenchRequest:
    """Return a request with what depends on the platform, where it leaves that open.

    How much the L2 keeps is as the device's size suggests. Under forced algorithms, and on a device
    whose visits scatter too much for precise sums, everything is visited as often as what no model
    calls.
    """
    sums = platform.device.type in PRECISE and not request.algorithms
    if request.rounds is None and not sums:
        request = replace(request, rounds=ROUNDS)
    if request.resident_bytes is not None:
        return request
    return replace(request, resident_bytes=resident_bytes(platform.device))


@dataclass(frozen=True)
class _Bench:
    """One bench under way."""

    store: Store
    request: BenchRequest
    platform: Platform
    share: Share
    budget: Budget
    progress: Progress

    def run(self, todo: Plan, unheard: list[list[Call]], turns: Turns, result: BenchResult) -> None:
        """Open a campaign and make what is to be made; `result` says what became of it."""
        device, board = self.platform.device, self.platform.board
        self.progress.say(f"calibrating {device.name} ({board.uuid})")
        before = self.store.campaigns(board=board.uuid)[-1:]
        with campaign(self.request.device, self.store, turns.workers) as session:
            result.campaign = session.campaign.id
            for said in [changed(earlier, session.campaign) for earlier in before]:
                if said is not None:
                    self.progress.say(said)
            together = turns.workers > 1
            moments = Moments(
                unheard,
                lambda calls: self._hear(session, calls),
                # where others measure on the host, the first are taken while they wait
                MOMENTS - together,
            )
            rounds = Rounds(
                session, self.store, self.budget, self.progress, self.share, moments.until
            )
            try:
                with turns.in_turn():
                    self._take_host_times(session, unheard if together else [])
                self._visit_all(todo, rounds)
                moments.until(1.0)
                self._settle_host_times(session, unheard)
            finally:
                derive_costs(self.store, board.uuid)
                _sum_up(result, rounds.tally, self.budget)
                result.anchors = rounds.anchors.made

    def _take_host_times(self, session: Session, unheard: list[list[Call]]) -> None:
        if not unheard or self.budget.spent():
            return
        self.progress.say(f"host times of {plural(len(unheard), 'workload')}")
        Moments(unheard, lambda calls: self._hear(session, calls), 1).until(1.0)

    def _hear(self, session: Session, calls: list[list[Call]]) -> None:
        """Take one moment of workloads, and save it whole: a part of it cannot be ranked."""
        if not self.budget.spent():
            seen = list(host_visits(session, calls))
            self.store.save_host_visits(seen)

    def _settle_host_times(self, session: Session, unheard: list[list[Call]]) -> None:
        """Take further ones at the end, for the host may have been held up before."""
        settle(
            unheard,
            lambda left: self._take_host_times(session, left),
            lambda: self.store.host_visits(self.platform.board.uuid),
        )

    def _visit_all(self, todo: Plan, rounds: Rounds) -> None:
        """Make the planned rounds, then what others gave up, then what is not precise enough."""
        store, request, board = self.store, self.request, rounds.board
        rounds.anchors.at_an_end()
        _freeze()  # these visits have imported what all visits need
        going_on = rounds.make(todo.rounds, self._lacking)
        going_on = going_on and self._visit_what_was_given_up(rounds)
        for number in range(request.rounds or 1, MAX_ROUNDS):
            if not going_on:
                break
            derive_costs(store, board.uuid)
            jobs = _further(store, board, request, number)
            if not jobs:
                break
            asked = request.precision if request.rounds else request.sum_precision
            self.progress.say(
                f"not within {100 * asked:g} % yet: "
                f"{plural(len(jobs), 'configuration')}; a further round"
            )
            going_on = rounds.make([jobs], self._lacking_further)
        rounds.anchors.at_an_end()

    def _visit_what_was_given_up(self, rounds: Rounds) -> bool:
        """Visit what other workers had and did not finish; False when the time was up first."""
        if not self.share.missed:
            return True
        asked = replace(self.request, configurations=sorted(self.share.missed))
        self.share.missed.clear()
        left = _planned(self.store, rounds.board, asked)
        return rounds.make(self.share.unclaimed(left).rounds, self._lacking)

    def _lacking(self, configuration: Configuration) -> list[PlannedVisit]:
        """Return the visits that one configuration lacks now, each as often as it is wanted."""
        asked = replace(self.request, configurations=[configuration.key])
        found = _planned(self.store, self.platform.board, asked)
        return [job for jobs in found.rounds for job in jobs]

    def _lacking_further(self, configuration: Configuration) -> list[PlannedVisit]:
        """Return the further visits of one configuration that are still to be made, if any."""
        key, board = configuration.key, self.platform.board
        asked = replace(self.request, configurations=[key])
        return [
            job
            for settings in asked.settings
            for job in further_round(self.store, board, settings, [key], asked.planned)
        ]


def _planned(store: Store, board: Board, request: BenchRequest) -> Plan:
    """Return the plan of what is pending under each of the settings, all of it in one order."""
    plans = [plan(store, board, settings, request.planned) for settings in request.settings]
    numbers = range(len(plans[0].rounds))
    rounds = [[job for each in plans for job in each.rounds[n]] for n in numbers]
    if len(plans) > 1 and request.configurations is None:
        for number, jobs in enumerate(rounds):
            random.Random(request.seed + number).shuffle(jobs)
    return Plan(tuple(tuple(jobs) for jobs in rounds))


def _further(
    store: Store, board: Board, request: BenchRequest, number: int
) -> tuple[PlannedVisit, ...]:
    """Return the visits of a further round: what this board has not as precise as asked."""
    if request.access != "model":
        return ()
    asked = replace(request.planned, seed=request.seed + number)
    found: list[PlannedVisit] = []
    for settings in request.settings:
        costs = _costs_of(store, board, request, settings)
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
    called = set().union(*_calls(store, board, request, costs).values())
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


def _calls(
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
    calling = set(_calls(store, board, request, costs))
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


def _sums(store: Store, board: Board, request: BenchRequest) -> list[Sum]:
    """Return the sums that a bench was to make precise, as far as they are measured."""
    found: list[Sum] = []
    for settings in request.settings:
        costs = _costs_of(store, board, request, settings)
        found += _sums_of(store, board, request, costs, settings)
    return found


def _costs_of(
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


def _sum_up(result: BenchResult, tally: Tally, budget: Budget) -> None:
    result.outcomes = tally.outcomes
    result.configurations = len(tally.costs_s)
    result.duplicates = tally.duplicates
    result.rejected = tally.rejected.total()
    result.refused = tally.refused
    result.cost_s = tally.cost_s
    result.typical_cost_s = statistics.median(tally.costs_s.values()) if tally.costs_s else None
    result.stopped = budget.stopped
    result.elapsed_s = budget.elapsed_s


def _reached(store: Store, board: Board, request: BenchRequest, result: BenchResult) -> Reached:
    """Say how precise the board's costs are that count by themselves, and why some are less so."""
    costs: list[Cost] = []
    unfinished: set[tuple[str, str]] = set()
    for settings in request.settings:
        found = _costs_of(store, board, request, settings)
        called = set().union(*_calls(store, board, request, found).values())
        found = [cost for cost in found if cost.configuration not in called]
        keys = [cost.configuration for cost in found]
        left = further_round(store, board, settings, keys, request.planned)
        left_keys = {job.configuration.key for job in left}
        unfinished |= {(c.configuration, c.setting) for c in found if c.configuration in left_keys}
        costs += found

    def why(cost: Cost) -> str:
        if (cost.configuration, cost.setting) not in unfinished:
            return f"after {MAX_ROUNDS} rounds"
        return "the time was up" if result.stopped else "rounds are left"

    return reached(costs, request.precision, why)


def _without_host_times(
    store: Store, platform: Platform, request: BenchRequest
) -> list[list[Call]]:
    """Return the calls of each workload in which one of these kinds lacks a host time, in order.

    None on a CPU, where the host is the device, none for calls other than a model's, and where
    algorithms are forced. Where configurations are given, their calls alone; of a whole generation
    those that are benched.
    """
    if platform.device.type == "cpu" or request.access != "model" or request.algorithms:
        return []
    have = {(v.configuration, v.form) for v in store.host_visits(platform.board.uuid)}
    chosen = None if request.configurations is None else set(request.configurations)
    found = []
    for workload in _heard(store, platform, request):
        benched = benched_calls(workload)
        calls = [c for c in benched if chosen is None or c.configuration.key in chosen]
        distinct = {(c.configuration.key, c.form): c for c in calls}
        lacking = [
            key
            for key, call in distinct.items()
            if key not in have
            and (request.kinds is None or call.configuration.kind in request.kinds)
        ]
        if lacking:
            found.append(calls)
            have |= distinct.keys()
    return found


def _heard(store: Store, platform: Platform, request: BenchRequest) -> list[Workload]:
    """Return the workloads of whose calls host times are taken: those asked for, or all.

    Workloads that only sweeps asked for are left out, and calls that a CUDA graph captures: the
    host does not issue them one by one.
    """
    if request.workloads is not None:
        return [w for w in store.workloads_by_key(sorted(request.workloads)) if not w.captured]
    swept = store.swept_keys()
    plain = [workload for workload in store.workloads() if workload.key not in swept]
    return [*plain, *store.workloads(compiled_for=platform.device.slug)]
