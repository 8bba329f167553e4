"""Rounds of visits: in their order, with an anchor about once a minute, rejected ones redone."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from opdb.bench.anchors import ANCHORS
from opdb.bench.calibrate import with_base_power_anew
from opdb.bench.plan import MAX_REDONE, PlannedVisit
from opdb.bench.session import Session, seconds_since
from opdb.bench.share import Lacking, Share
from opdb.bench.visit import LOWERED_DUTIES, VisitRequest, is_at_full_clock, visit
from opdb.derive.rejection import FOREIGN_PROCESS
from opdb.derive.review import is_rejected, marked
from opdb.errors import CannotMeasureError, ClaimLostError
from opdb.records import Configuration, Visit
from opdb.store import Store
from opdb.units import plural

MAX_FAILURES_IN_A_ROW = 8
"""After this many errors in a row something else than the configurations is wrong."""

ANCHOR_EVERY_S = 60.0
"""How often an anchor is measured between visits, one of them in turn."""

ANCHOR_VALID_S = 600.0
"""At both ends of a campaign those anchors are measured whose last visit on the board is older."""

BASE_POWER_EVERY_S = 180.0
"""How often base power is measured between visits, each time in a further campaign: it falls as a
board cools. On an H100 that was warm when its bench began it fell by 16 of 136 W in 13 minutes, by
up to 2 W a minute."""


class Progress(Protocol):
    """Hears how a campaign goes."""

    def say(self, text: str) -> None:
        """Hear of a step that is no visit."""

    def begin(self, visits: int) -> None:
        """Hear how many visits are planned."""

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        """Hear of a finished visit, already saved, and the device time it took."""


@dataclass
class Tally:
    """The work of a campaign: visits by outcome, device time (seconds) by configuration key."""

    outcomes: Counter[str] = field(default_factory=Counter)
    costs_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rejected: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    anchors: int = 0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, made: Iterable[Visit], algorithm: str | None = None) -> None:
        """Count the visits of one job, and what its algorithm could not run, by name and why."""
        for one in made:
            if algorithm is not None and one.outcome == "unsupported":
                self.refused[algorithm, one.reason or ""] += 1
            self.outcomes[one.outcome] += 1
            self.costs_s[one.configuration] += one.cost_s
            self.duplicates += one.role == "duplicate"
            self.rejected[one.configuration] += is_rejected(one)

    @property
    def cost_s(self) -> float:
        """Device time of all visits, in seconds."""
        return math.fsum(self.costs_s.values())


class Budget:
    """The time that a campaign is given, and what became of it."""

    def __init__(self, max_s: float | None) -> None:
        self._began_s, self._max_s = time.monotonic(), max_s
        self.stopped: str | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the campaign was asked for."""
        return time.monotonic() - self._began_s

    @property
    def share(self) -> float:
        """The share of the time given that has passed; 0 where it is not limited."""
        return self.elapsed_s / self._max_s if self._max_s else 0.0

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
        self._turn = 0
        self.made = 0
        self.flags: tuple[str, ...] = ()
        if session.on_gpu:
            for anchor in store.visits(session.platform.board.uuid, role="anchor"):
                age_s = seconds_since(anchor.started_at)
                self._measured_s[anchor.configuration] = time.monotonic() - age_s

    def at_an_end(self) -> None:
        """Measure each anchor that was not measured for some minutes."""
        if not self.session.on_gpu:
            return
        self.flags = self._foreign()
        self._store.save_configurations(ANCHORS)
        for configuration in ANCHORS:
            if self._age_s(configuration) > ANCHOR_VALID_S:
                self._measure(configuration)

    def _age_s(self, configuration: Configuration) -> float:
        """Return how long ago an anchor was measured; one of the future counts as never."""
        age_s = time.monotonic() - self._measured_s.get(configuration.key, -math.inf)
        return age_s if age_s >= 0 else math.inf

    def when_due(self) -> None:
        """Measure the next anchor in turn, if a minute has passed since the last.

        Those that the power limit slows down are left out: gaps between their replays make
        them scatter.
        """
        if not self.session.on_gpu or min(map(self._age_s, ANCHORS)) < ANCHOR_EVERY_S:
            return
        steady = [c for c in ANCHORS if self._duties.get(c.key, 1.0) == 1.0] or list(ANCHORS)
        self._measure(steady[self._turn % len(steady)])
        self._turn += 1

    def _measure(self, configuration: Configuration) -> None:
        self.flags = self._foreign()
        duty = self._duties.get(configuration.key, 1.0)
        made = visit(self.session, VisitRequest(configuration, role="anchor", duty=duty))
        for one in made:
            self._store.save_visit(replace(one, flags=(*one.flags, *self.flags)))
        self._duties[configuration.key] = duty_after(made)
        self._measured_s[configuration.key] = time.monotonic()
        self.made += 1

    def _foreign(self) -> tuple[str, ...]:
        from opdb.meters.nvml import foreign_processes

        found = foreign_processes(self.session.platform.board.uuid)
        return tuple(f"{FOREIGN_PROCESS}: {process}" for process in found)


def duty_after(made: Sequence[Visit]) -> float:
    """Return the busy share at which a configuration was last seen at full clock."""
    last = made[-1].stretch
    if last is None or last.busy_share == 1.0 or not is_at_full_clock(made[-1].flags):
        return 1.0
    return min(duty for duty in (1.0, *LOWERED_DUTIES) if duty >= last.busy_share)


class Rounds:
    """Makes the visits of rounds one by one, each saved as soon as it is done.

    The measuring code knows nothing of roles: a duplicate gets its role when it is stored. Where
    other workers share the list, a visit is made by the one that claimed its configuration.
    `between` is told before each visit which share of the rounds, or of the time, will be over.
    """

    def __init__(
        self,
        session: Session,
        store: Store,
        budget: Budget,
        progress: Progress,
        share: Share,
        between: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._session, self._store, self._share = session, store, share
        self._between, self._begun, self._planned = between, 0, 0
        self._budget, self._progress = budget, progress
        self.board = session.platform.board
        self.tally = Tally()
        self.anchors = Anchors(session, store)
        self._known: dict[PlannedVisit, VisitRequest] = {}
        self._redone: Counter[PlannedVisit] = Counter()
        self._failed: set[tuple[str, str | None]] = set()
        self._failures = 0

    def make(self, rounds: Sequence[Sequence[PlannedVisit]], lacking: Lacking) -> bool:
        """Visit what rounds hold, what was rejected once more; False when the time was up first.

        `lacking` is asked of each configuration once it is claimed: others may have been there.

        Raises:
            CannotMeasureError: too many in a row failed, or the device stopped answering.
        """
        if not any(rounds):
            return True
        self._share.begin(rounds, lacking)
        self._begun, self._planned = 0, sum(len(jobs) for jobs in rounds)
        self._progress.begin(self._planned)
        again: list[PlannedVisit] = []
        for jobs in rounds:
            found = self._round(jobs)
            if found is None:
                return False
            again += found
        while again:
            self._progress.say(f"rejected and made again: {plural(len(again), 'visit')}")
            self._progress.begin(len(again))
            found = self._round(again)
            if found is None:
                return False
            again = found
        return True

    def _round(self, jobs: Sequence[PlannedVisit]) -> list[PlannedVisit] | None:
        """Visit each; return what was rejected and may be redone, None when the time was up."""
        again = []
        for job in jobs:
            if self._budget.spent():
                return None
            self._begun += 1
            self._between(max(self._begun / self._planned, self._budget.share))
            if (job.configuration.key, job.algorithm) in self._failed:
                continue
            if not self._share.is_mine(job):
                continue
            self._measure_base_power_when_due()
            self.anchors.when_due()
            last = self._visit(job)
            if last is None:
                continue
            if is_rejected(last) and self._redone[job] < MAX_REDONE:
                self._redone[job] += 1
                again.append(job)
        return again

    def _measure_base_power_when_due(self) -> None:
        """Go on in a further campaign where the last measured base power some minutes ago."""
        began_s = seconds_since(self._session.campaign.started_at)
        if self._session.on_gpu and began_s >= BASE_POWER_EVERY_S:
            self._session = with_base_power_anew(self._session, self._store)
            self.anchors.session = self._session

    def _visit(self, job: PlannedVisit) -> Visit | None:
        """Make a visit and save it; None where another worker has taken it over meanwhile."""
        same = replace(job, role="measurement")  # a duplicate is the same call
        request = self._known.get(same) or VisitRequest(
            job.configuration,
            access=job.access,
            weights=job.weights,
            algorithm=job.algorithm,
        )
        made = visit(self._session, request)
        kept = [self._as_stored(one, job) for one in made]
        try:
            for one in kept:
                self._store.save_visit(one, self._share.claim(job))
        except ClaimLostError as error:
            self._progress.say(str(error))
            self._share.lose(job)
            return None
        self.tally.count(kept, job.algorithm)
        last = kept[-1]
        self._progress.visited(job.configuration, last, math.fsum(one.cost_s for one in kept))
        self._known[same] = replace(request, duty=duty_after(made), kernels=last.kernels)
        if last.outcome != "ok":
            # A second round would not change it.
            self._failed.add((job.configuration.key, job.algorithm))
        self._failures = self._failures + 1 if last.outcome == "error" else 0
        if self._failures >= MAX_FAILURES_IN_A_ROW:
            raise CannotMeasureError(
                f"{self._failures} configurations failed in a row, the last with: {last.reason}; "
                "see opdb status for all, and try again with --retry"
            )
        return last

    def _as_stored(self, one: Visit, job: PlannedVisit) -> Visit:
        """Return a visit with its role and what is said of it; a failure is never a duplicate."""
        one = replace(one, flags=(*one.flags, *self.anchors.flags))
        if one.role == "measurement" and one.outcome == "ok":
            one = replace(one, role=job.role)
        return marked(one, self._session.platform.device)
