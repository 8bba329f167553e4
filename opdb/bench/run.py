"""A campaign of operator visits: everything that is pending, saved visit by visit."""

from __future__ import annotations

import gc
import math
import random
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from opdb.bench.anchors import ANCHORS
from opdb.bench.calibrate import calibrate
from opdb.bench.host import host_visits
from opdb.bench.plan import plan
from opdb.bench.platform import Platform, detect, open_meter
from opdb.bench.session import Session, open_session
from opdb.bench.settings import current_settings
from opdb.bench.visit import LOWERED_DUTIES, VisitRequest, is_at_full_clock, visit
from opdb.derive.costs import Deriver, host_quantities
from opdb.errors import CannotMeasureError
from opdb.records import Call, Configuration, Visit
from opdb.store import Store

MAX_FAILURES_IN_A_ROW = 8
"""After so many errors in a row something else than the configurations is wrong."""


class Progress(Protocol):
    """Hears how a campaign goes."""

    def say(self, text: str) -> None:
        """Hear of a step that is no visit."""

    def begin(self, visits: int) -> None:
        """Hear how many visits are planned."""

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        """Hear of a finished visit, already saved, and the device time it took."""


@dataclass
class BenchResult:
    """What a campaign did: visits by outcome and what they cost."""

    campaign: str | None
    device: str
    board: str
    outcomes: Counter[str] = field(default_factory=Counter)
    configurations: int = 0
    cost_s: float = 0.0
    elapsed_s: float = 0.0
    stopped: str | None = None


@contextmanager
def campaign(device: str | None, store: Store) -> Iterator[Session]:
    """Open a calibrated campaign on a device and save it; the meter is closed at the end.

    Raises:
        CannotMeasureError: there is no such device, or it cannot be metered where it must.
    """
    platform = detect(device)
    meter = open_meter(platform)
    try:
        gc.collect()
        gc.freeze()  # collecting between visits then looks at what the visits made alone
        session = open_session(platform, meter)
        session = session.calibrated(calibrate(session))
        store.save_campaign(session.campaign)
        yield session
    finally:
        gc.unfreeze()
        meter.close()


@dataclass(frozen=True)
class BenchRequest:
    """What to bench: kinds (None: all) on a device, for at most so many seconds.

    `this_board` asks what this very board lacks, whatever other boards of the device have.
    """

    kinds: Collection[str] | None = None
    device: str | None = None
    max_s: float | None = None
    retry: bool = False
    this_board: bool = False
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))


def bench(store: Store, request: BenchRequest, progress: Progress) -> BenchResult:
    """Take the host times that are lacking, visit what is pending, derive the board's costs.

    Raises:
        CannotMeasureError: no device, or it stopped answering; what was finished is saved.
    """
    began_s = time.monotonic()
    platform = detect(request.device)
    todo = plan(
        store,
        platform.board if request.this_board else platform.device.slug,
        current_settings(),
        request.kinds,
        seed=request.seed,
        retry=request.retry,
    )
    result = BenchResult(None, platform.device.slug, platform.board.uuid)
    # On a CPU the host is the device.
    unheard = [] if platform.device.type == "cpu" else _without_host_times(store, platform, request)
    if not todo.visits and not unheard:
        derive_costs(store, platform.board.uuid)  # a bench that was killed has not come to it
        return result
    budget = _Budget(began_s, request.max_s, result)
    progress.say(f"calibrating {platform.device.name} ({platform.board.uuid})")
    with campaign(request.device, store) as session:
        result.campaign = session.campaign.id
        try:
            if unheard:
                progress.say(f"host times of {len(unheard)} workloads")
                for host_visit in host_visits(session, unheard, seed=request.seed):
                    store.save_host_visit(host_visit)
                    if budget.spent():
                        break
            if session.on_gpu:
                _visit_anchors(session, store)
            progress.begin(todo.visits)
            _visit_all(session, store, todo.rounds, budget, progress)
        finally:
            derive_costs(store, session.campaign.board.uuid)
            result.elapsed_s = time.monotonic() - began_s
    return result


@dataclass
class _Budget:
    began_s: float
    max_s: float | None
    result: BenchResult

    def spent(self) -> bool:
        """Whether the time is up; says so in the result."""
        if self.max_s is None or time.monotonic() - self.began_s < self.max_s:
            return False
        self.result.stopped = f"the {self.max_s:.0f} s given are up"
        return True


def _visit_anchors(session: Session, store: Store) -> None:
    store.save_configurations(ANCHORS)
    for configuration in ANCHORS:
        for made in visit(session, VisitRequest(configuration, role="anchor")):
            store.save_visit(made)


def _visit_all(
    session: Session,
    store: Store,
    rounds: tuple[tuple[Configuration, ...], ...],
    budget: _Budget,
    progress: Progress,
) -> None:
    known: dict[str, VisitRequest] = {}
    seen: set[str] = set()
    failed: set[str] = set()
    failures = 0
    for configurations in rounds:
        for configuration in configurations:
            if budget.spent():
                return
            if configuration.key in failed:
                continue
            request = known.get(configuration.key) or VisitRequest(configuration)
            made = visit(session, request)
            for one in made:
                store.save_visit(one)
                budget.result.outcomes[one.outcome] += 1
                budget.result.cost_s += one.cost_s
            last = made[-1]
            progress.visited(configuration, last, math.fsum(one.cost_s for one in made))
            seen.add(configuration.key)
            budget.result.configurations = len(seen)
            known[configuration.key] = VisitRequest(
                configuration, duty=_duty_after(made), kernels=last.kernels
            )
            if last.outcome != "ok":
                failed.add(configuration.key)  # a second round would not change it
            failures = failures + 1 if last.outcome == "error" else 0
            if failures >= MAX_FAILURES_IN_A_ROW:
                raise CannotMeasureError(
                    f"{failures} configurations failed in a row, the last with: {last.reason}; "
                    "see opdb status for all, and try again with --retry"
                )


def _duty_after(made: list[Visit]) -> float:
    """Return the busy share at which a configuration was last seen at full clock."""
    last = made[-1].stretch
    if last is None or last.busy_share == 1.0 or not is_at_full_clock(made[-1].flags):
        return 1.0
    return min(duty for duty in (1.0, *LOWERED_DUTIES) if duty >= last.busy_share)


def _without_host_times(
    store: Store, platform: Platform, request: BenchRequest
) -> list[list[Call]]:
    """Return the distinct calls of each workload in which one of these kinds lacks a host time."""
    have = {(v.configuration, v.form) for v in store.host_visits(platform.board.uuid)}
    found = []
    for workload in store.workloads():
        distinct = {(c.configuration.key, c.form): c for c in workload.calls}
        lacking = [
            key
            for key, call in distinct.items()
            if key not in have
            and (request.kinds is None or call.configuration.kind in request.kinds)
        ]
        if lacking:
            found.append(list(distinct.values()))
            have |= distinct.keys()
    return found


def derive_costs(store: Store, board: str) -> int:
    """Derive the costs of a board anew from all its visits; return how many there are."""
    hosts = host_quantities(store.host_visits(board))
    deriver = Deriver(store.campaigns(board=board), store.visits(board))
    costs = deriver.costs(hosts)
    store.save_costs(costs)
    return len(costs)
