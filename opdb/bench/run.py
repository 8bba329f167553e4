"""A campaign of operator visits: everything that is pending, saved visit by visit.

Rounds go in their order, with an anchor about once a minute; rejected visits are made again.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from opdb.bench.calibrate import (
    calibrate,
    ensure_board_calibration,
    recent_campaign,
    trusting,
    with_base_power_anew,
)
from opdb.bench.host import MOST_MOMENTS, few_at_once, host_visits
from opdb.bench.plan import (
    FORCED_KIND,
    MAX_ROUNDS,
    ROUNDS,
    BenchRequest,
    SumsReached,
    benched_in,
    left,
)
from opdb.bench.session import (
    Launching,
    Platform,
    Session,
    detect,
    open_meter,
    open_session,
    seconds_since,
)
from opdb.bench.visit import LOWERED_DUTIES, VisitRequest, check_algorithms, is_at_full_clock, visit
from opdb.derive.costs import is_rejected, marked
from opdb.derive.quiet import is_settled
from opdb.derive.statistics import Reached, reached
from opdb.errors import ClaimLostError
from opdb.growth import benched_calls
from opdb.memory import resident_bytes
from opdb.progress import Display, Progress
from opdb.records import Call, Configuration, Visit, Workload
from opdb.store import Claims, Store, open_store, take_in
from opdb.store.costs import derive_costs
from opdb.units import plural
from opdb.workers import ALONE, Crew, WorkerDevice, on_each

ANCHOR_EVERY_S = 60.0
"""How often an anchor is measured between visits, one of them in turn."""

ANCHOR_VALID_S = 600.0
"""At both ends of a campaign those anchors are measured whose last visit on the board is older."""

BASE_POWER_EVERY_S = 180.0
"""How often base power is measured between visits, each time in a further campaign: it falls as a
board cools. On an H100 that was warm when its bench began it fell by 16 of 136 W in 13 minutes, by
up to 2 W a minute."""


@dataclass
class BenchResult:
    """The work of a campaign: visits by outcome, what they cost, how precise the costs are now.

    `costs_s` is device time by configuration (key). `reached` is of operators, `sums` of the models
    whose sums were to be precise, None where nothing was to do. `rejected` counts visits kept and
    not counted, `refused` the configurations that an algorithm could not run, by its name and why.
    `elsewhere` are the configurations (keys) that other workers had when they came up.
    """

    campaign: str | None
    device: str
    board: str
    outcomes: Counter[str] = field(default_factory=Counter)
    costs_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rejected: int = 0
    elapsed_s: float = 0.0
    stopped: str | None = None
    reached: Reached | None = None
    sums: SumsReached | None = None
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def configurations(self) -> int:
        return len(self.costs_s)

    @property
    def cost_s(self) -> float:
        return math.fsum(self.costs_s.values())

    @property
    def typical_cost_s(self) -> float | None:
        return statistics.median(self.costs_s.values()) if self.costs_s else None

    def count(self, made: Iterable[Visit], algorithm: str | None = None) -> None:
        for one in made:
            if algorithm is not None and one.outcome == "unsupported":
                self.refused[algorithm, one.reason or ""] += 1
            self.outcomes[one.outcome] += 1
            self.costs_s[one.configuration] += one.cost_s
            self.rejected += is_rejected(one)


class Budget:
    """The seconds that a campaign or a build may take, from a moment on; None is without bound."""

    def __init__(self, max_s: float | None) -> None:
        self._began_s, self._max_s = time.monotonic(), max_s
        self.stopped: str | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float | None:
        return None if self._max_s is None else self._max_s - self.elapsed_s

    def spent(self) -> bool:
        """Whether the time is up; `stopped` then says so."""
        if self._max_s is None or self.elapsed_s < self._max_s:
            return False
        self.stopped = f"the time given, {self._max_s:.0f} s, is up"
        return True


class Anchors:
    """Measures the anchors of a board, by the clock: one in turn each minute between visits.

    At both ends of a campaign those are measured that were not for ten minutes, whichever campaign
    measured them: a short bench takes no time for anchors that a bench before it took.

    While an anchor is measured, the board is looked at for other processes; what is found is a
    flag of every visit until the next look.
    """

    def __init__(self, session: Session, store: Store) -> None:
        self.session, self._store = session, store
        self._duties: dict[str, float] = {}
        self._measured_s: dict[str, float] = {}
        self.flags: tuple[str, ...] = ()
        if session.on_gpu:
            for anchor in store.visits(session.platform.board.uuid, role="anchor"):
                age_s = seconds_since(anchor.started_at)
                self._measured_s[anchor.configuration] = time.monotonic() - age_s

    def at_an_end(self) -> None:
        if not self.session.on_gpu:
            return
        self.flags = self.session.foreign()
        self._store.save_configurations(ANCHORS)
        for configuration in ANCHORS:
            if self._age_s(configuration) > ANCHOR_VALID_S:
                self._measure(configuration)

    def _age_s(self, configuration: Configuration) -> float:
        return time.monotonic() - self._measured_s.get(configuration.key, -math.inf)

    def when_due(self) -> None:
        """Measure the anchor whose last visit is the oldest, if that of none is of this minute.

        Those that the power limit slows down are left out: gaps between their replays make
        them scatter.
        """
        if not self.session.on_gpu or min(map(self._age_s, ANCHORS)) < ANCHOR_EVERY_S:
            return
        steady = [c for c in ANCHORS if self._duties.get(c.key, 1.0) == 1.0] or list(ANCHORS)
        self._measure(max(steady, key=self._age_s))

    def _measure(self, configuration: Configuration) -> None:
        self.flags = self.session.foreign()
        duty = self._duties.get(configuration.key, 1.0)
        made = visit(self.session, VisitRequest(configuration, role="anchor", duty=duty))
        for one in made:
            self._store.save_visit(replace(one, flags=(*one.flags, *self.flags)))
        self._duties[configuration.key] = duty_after(made)
        self._measured_s[configuration.key] = time.monotonic()


def duty_after(made: Sequence[Visit]) -> float:
    last = made[-1].stretch
    if last is None or last.busy_share == 1.0 or not is_at_full_clock(made[-1].flags):
        return 1.0
    return min(duty for duty in (1.0, *LOWERED_DUTIES) if duty >= last.busy_share)


class BenchCampaign:
    """All that a bench does in its campaign: host times, visits round by round, host times again.

    The measuring code knows nothing of roles: a duplicate gets its role when it is stored. Where
    other workers share the list, a visit is made by the one that claimed its configuration.
    """

    def __init__(
        self,
        session: Session,
        store: Store,
        request: BenchRequest,
        claims: Claims,
        budget: Budget,
        display: Display,
        crew: Crew,
        result: BenchResult,
    ) -> None:
        self._session, self._store, self._request = session, store, request
        self._host_session = session  # host times stay with the campaign that a bench opens
        self._claims, self._budget, self._display, self._crew = claims, budget, display, crew
        self._result = result
        self._board = session.platform.board
        self.anchors = Anchors(session, store)
        self._known: dict[VisitRequest, VisitRequest] = {}
        self._wanted: Counter[str] = Counter()
        self._failed: set[tuple[str, str | None]] = set()

    def run(self, todo: Sequence[VisitRequest], unheard: Sequence[list[Call]] = ()) -> None:
        """Make what is to be made, and derive the board's costs.

        The calls `unheard` are those of the workloads that lack host times.
        """
        try:
            self._take_host_times(unheard)
            self.anchors.at_an_end()
            _freeze()  # these visits have imported what all visits need
            self._visit_in_rounds(todo)
            self.anchors.at_an_end()
            unsettled = unheard
            for _ in range(1, MOST_MOMENTS):
                self._take_host_times(unsettled)
                taken = self._store.host_visits(self._board.uuid)
                unsettled = [calls for calls in unsettled if not is_settled(taken, calls)]
        finally:
            derive_costs(self._store, self._board.uuid)
            result, budget = self._result, self._budget
            result.stopped, result.elapsed_s = budget.stopped, budget.elapsed_s

    def _take_host_times(self, workloads: Sequence[list[Call]]) -> None:
        if not workloads or self._budget.spent():
            return
        self._display.note(f"host times of {plural(len(workloads), 'workload')}")
        with self._crew.alone():
            for calls in few_at_once(workloads):
                if not self._budget.spent():
                    self._store.save_host_visits(list(host_visits(self._host_session, calls)))

    def _visit_in_rounds(self, todo: Sequence[VisitRequest]) -> None:
        left_over = replace(self._request, retry=False)  # what failed again is left
        jobs = list(todo)
        while jobs and self.make(jobs):
            derive_costs(self._store, self._board.uuid)
            jobs = [
                job
                for job in left(self._store, self._board, left_over)
                if job.configuration.key not in self._result.elsewhere
                and (job.configuration.key, job.algorithm) not in self._failed
            ]
            self._wanted = Counter(job.configuration.key for job in jobs)
            if jobs:
                self._display.note(
                    f"rejected or not precise yet: {plural(len(jobs), 'visit')}; a further round"
                )

    def make(self, jobs: Sequence[VisitRequest]) -> bool:
        """Make visits; False when the time was up first."""
        with self._display.progress(len(jobs), "bench") as shown:
            for job in jobs:
                if self._budget.spent():
                    return False
                self._crew.make_way()
                if self._is_wanted(job):
                    self._measure_base_power_when_due()
                    self.anchors.when_due()
                    self._visit(job, shown)
        return True

    def _is_wanted(self, job: VisitRequest) -> bool:
        """Claim the configuration when its first visit comes up, and keep it to the end.

        So all its visits are made on one board, and those that others have made meanwhile are not.
        """
        key = job.configuration.key
        if not self._claims.has(key):
            if not self._claims.take(key):
                self._result.elsewhere.add(key)
                return False
            asked = replace(self._request, configurations=[key])
            self._wanted[key] = len(left(self._store, self._board, asked))
            if not self._wanted[key]:
                self._result.elsewhere.add(key)
        self._claims.renew_when_due()
        return self._wanted[key] > 0 and (key, job.algorithm) not in self._failed

    def _measure_base_power_when_due(self) -> None:
        began_s = seconds_since(self._session.campaign.started_at)
        if self._session.on_gpu and began_s >= BASE_POWER_EVERY_S:
            self._session = with_base_power_anew(self._session, self._store)
            self.anchors.session = self._session

    def _visit(self, job: VisitRequest, shown: Progress) -> None:
        """Make a visit and save it, unless another worker has taken it over meanwhile."""
        same = replace(job, role="measurement")  # a duplicate is the same call
        request = self._known.get(same, same)
        made = visit(self._session, request)
        kept = [self._as_stored(one, job) for one in made]
        key = job.configuration.key
        try:
            for one in kept:
                self._store.save_visit(one, self._claims.claim(key))
        except ClaimLostError as error:
            shown.note(str(error))
            self._claims.give_back([key])
            self._result.elsewhere.add(key)
            return
        self._result.count(kept, job.algorithm)
        self._wanted[key] -= 1
        last = kept[-1]
        self._known[same] = replace(request, duty=duty_after(made), kernels=last.kernels)
        shown.doing(job.configuration.title)
        if last.outcome != "ok":
            shown.note(f"{job.configuration.title}: {last.outcome}: {last.reason}")
            self._failed.add((key, job.algorithm))  # a second round would not change it
        shown.done()

    def _as_stored(self, one: Visit, job: VisitRequest) -> Visit:
        """Return a visit with its role and what is said of it; a failure is never a duplicate."""
        one = replace(one, flags=(*one.flags, *self.anchors.flags))
        if one.role == "measurement" and one.outcome == "ok":
            one = replace(one, role=job.role)
        return marked(one, self._session.platform.device)


# Operators measured in every campaign, so that boards can be compared and drift be seen.
#
# They are bound by arithmetic (TF32, bfloat16, float32), by memory, and by neither (short kernels):
# what they cost here against what they cost on another board are that board's factors.

ANCHORS: tuple[Configuration, ...] = (
    Configuration(
        "conv2d",
        {"padding": [1, 1]},
        {
            "input": {"shape": [32, 256, 14, 14], "dtype": "float32", "values": "rectified"},
            "weight": {"shape": [256, 256, 3, 3], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "linear",
        {},
        {
            "input": {"shape": [4096, 1024], "dtype": "bfloat16"},
            "weight": {"shape": [4096, 1024], "dtype": "bfloat16", "role": "weight"},
        },
    ),
    Configuration("relu", {}, {"input": {"shape": [64, 256, 56, 56], "dtype": "float32"}}),
    Configuration(
        "linear",
        {},
        {
            "input": {"shape": [2048, 1024], "dtype": "float32"},
            "weight": {"shape": [1024, 1024], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "conv2d",
        {"padding": [1, 1]},
        {
            "input": {"shape": [1, 128, 28, 28], "dtype": "float32", "values": "rectified"},
            "weight": {"shape": [128, 128, 3, 3], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "add",
        {},
        {
            "input": {"shape": [1, 256, 14, 14], "dtype": "float32"},
            "other": {"shape": [1, 256, 14, 14], "dtype": "float32"},
        },
    ),
)


PRECISE = ("cuda",)
"""Types of devices on which visits repeat well enough for the sums of models to be made precise."""

WORKERS = "workers"
"""In a campaign's environment: how many workers measured on its host at once, where several."""


@contextmanager
def campaign(platform: Platform, store: Store, workers: int = 1) -> Iterator[Session]:
    """Open a calibrated campaign and save it; the meter is closed at the end."""
    if workers > 1:
        environment = {**platform.environment, WORKERS: str(workers)}
        platform = replace(platform, environment=environment)
    meter = open_meter(platform)
    session = open_session(platform, meter)
    try:
        _freeze()
        session = trusting(session, ensure_board_calibration(session, store))
        if session.on_gpu:
            session = replace(session, launching=Launching(platform.torch_device))
        session = session.calibrated(calibrate(session, recent_campaign(session, store)))
        store.save_campaign(session.campaign)
        yield session
    except RuntimeError:  # torch's: what spoils a context may come up anywhere after it
        session.check_alive()
        raise
    finally:
        gc.unfreeze()
        meter.close()


def _freeze() -> None:
    """Let collecting between visits look at what they make alone.

    After the first call alone it still took 41 of a visit's 500 ms on an H200's host (cProfile).
    """
    gc.collect()
    gc.freeze()


def bench_on_each(
    places: Sequence[WorkerDevice], store: Store, request: BenchRequest, display: Display
) -> tuple[list[BenchResult], list[str]]:
    return on_each(places, _bench_at, (store.url, request), display)


def _bench_at(
    device: str, display: Display, crew: Crew, url: str, request: BenchRequest
) -> BenchResult:
    with open_store(url, create=False) as store:
        return bench(store, replace(request, device=device), display, crew)


def bench(store: Store, request: BenchRequest, display: Display, crew: Crew = ALONE) -> BenchResult:
    """Take the host times that are lacking, visit what is pending, derive the board's costs.

    Workers that share the database share what is pending: each claims what it comes to. `crew` are
    those of this command on this host.
    """
    budget = Budget(request.max_s)
    platform = detect(request.device)
    board, where = platform.board, f"{platform.device.name} ({platform.board.uuid})"
    check_algorithms(request.algorithms, platform)
    request = _fitted(request, platform)
    take_in(store, board.device)  # what others have published of it is not pending
    derive_costs(store, board.uuid)  # a bench that was killed has not come to it
    result = BenchResult(None, board.device, board.uuid)
    # A list is its device's, and the device's boards share it, or a board's own.
    scope = board.uuid if request.this_board else board.device
    with Claims(store, scope, board.uuid) as claims:
        others, wanted = claims.others(), left(store, board, request)
        todo = [job for job in wanted if job.configuration.key not in others]
        result.elsewhere |= {job.configuration.key for job in wanted} & others
        unheard = _without_host_times(store, platform, request)
        if todo or unheard:
            lacking = {job.configuration.key for job in todo}
            display.note(f"{plural(len(lacking), 'configuration')} to measure on {where}")
            with crew.measuring(), campaign(platform, store, crew.workers) as session:
                result.campaign = session.campaign.id
                given = claims, budget, display, crew, result
                BenchCampaign(session, store, request, *given).run(todo, unheard)
    if result.campaign is not None:
        benched = benched_in(store, board, request)
        costs = [c for each in benched for c in each.costs if c.configuration not in each.called]
        why = "the time was up" if result.stopped else f"after {MAX_ROUNDS} rounds"
        result.reached = reached(costs, request.precision, lambda cost: why)
        sums = [sum_ for each in benched for sum_ in each.sums]
        result.sums = SumsReached.of(sums, request.sum_precision)
    return result


def _fitted(request: BenchRequest, platform: Platform) -> BenchRequest:
    """Return a request with what depends on the platform, where it leaves that open.

    How much the L2 keeps is as the device's size suggests. Under forced algorithms, and on a device
    whose visits scatter too much for precise sums, everything is visited as often as what no model
    calls.
    """
    if request.algorithms:
        request = replace(request, kinds={FORCED_KIND}, duplicates=0.0)
    sums = platform.device.type in PRECISE and not request.algorithms
    if request.rounds is None and not sums:
        request = replace(request, rounds=ROUNDS)
    if request.resident_bytes is not None:
        return request
    return replace(request, resident_bytes=resident_bytes(platform.device))


def _without_host_times(
    store: Store, platform: Platform, request: BenchRequest
) -> list[list[Call]]:
    """Return the calls of each workload in which one of these kinds lacks a host time, in order.

    None where they are not asked for, on a CPU, where the host is the device, and where algorithms
    are forced. Where configurations are given, their calls alone; of a whole generation those that
    are benched.
    """
    if not request.host_times or request.algorithms or platform.device.type == "cpu":
        return []
    have = {(v.configuration, v.form) for v in store.host_visits(platform.board.uuid)}
    chosen = None if request.configurations is None else set(request.configurations)
    found = []
    for workload in _heard(store, platform, request):
        benched = benched_calls(workload)
        calls = [c for c in benched if chosen is None or c.configuration.key in chosen]
        kinds = {(c.configuration.key, c.form): c.configuration.kind for c in calls}
        lacking = {kind for call, kind in kinds.items() if call not in have}
        if lacking if request.kinds is None else lacking & set(request.kinds):
            found.append(calls)
            have |= kinds.keys()
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
