"""A campaign of operator visits: everything that is pending, saved visit by visit."""

from __future__ import annotations

import gc
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from opdb.bench import forced
from opdb.bench.board import ensure_board_calibration, trusting
from opdb.bench.calibrate import calibrate, recent_campaign
from opdb.bench.further import Benched, SumsReached, further, sums_to_reach
from opdb.bench.host import MOMENTS, Moments, host_visits, settle
from opdb.bench.plan import (
    MAX_ROUNDS,
    ROUNDS,
    Plan,
    PlannedVisit,
    further_round,
    plan,
)
from opdb.bench.platform import Platform, detect, open_meter
from opdb.bench.request import BenchRequest
from opdb.bench.rounds import Budget, Progress, Rounds, Tally
from opdb.bench.session import Session, open_session
from opdb.bench.share import Share
from opdb.bench.turns import ALONE, Turns
from opdb.derive.precision import Reached, reached
from opdb.footprint import resident_bytes
from opdb.growth import benched_calls
from opdb.records import (
    Board,
    Call,
    Campaign,
    Configuration,
    Cost,
    Workload,
)
from opdb.store import Claims, Store, take_in
from opdb.store.deriving import derive_costs
from opdb.units import plural

PRECISE = ("cuda",)
"""Types of devices on which visits repeat well enough for the sums of models to be made precise."""

WORKERS = "workers"
"""In a campaign's environment: how many workers measured on its host at once, where several."""


SOFTWARE = ("driver", "cuda", "cudnn", "torch")
"""What of a campaign's environment decides which kernels run, and how fast."""


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
    take_in(store, platform.device.slug)  # what others have published of it is not pending
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
        if todo.visits or unheard or further(store, board, request, 0):
            _Bench(store, request, platform, share, budget, progress).run(
                todo, unheard, turns, result
            )
        else:
            with turns.in_turn():
                pass  # the others wait for everybody
        result.elsewhere = frozenset(share.missed)
    if request.access == "model" and result.campaign is not None:
        result.reached = _reached(store, board, request, result)
        result.sums = SumsReached.of(sums_to_reach(store, board, request), request.sum_precision)
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
            jobs = further(store, board, request, number)
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
        benched = Benched(store, board, request, settings)
        found = [cost for cost in benched.costs if cost.configuration not in benched.called]
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

    None where they are not asked for, on a CPU, where the host is the device, for calls other than
    a model's, and where algorithms are forced. Where configurations are given, their calls alone;
    of a whole generation those that are benched.
    """
    if not request.host_times or request.access != "model" or request.algorithms:
        return []
    if platform.device.type == "cpu":
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
