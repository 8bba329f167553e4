"""Which visits of a plan this worker makes, where others work on the same list.

A configuration is claimed when its first visit comes up, and kept to the end: all its visits are
made on one board. What a plan holds may be out of date by then, so what is left of a configuration
is asked again once it is claimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from opdb.bench.plan import Plan, PlannedVisit
from opdb.records import Configuration
from opdb.store import Claims
from opdb.store.lease import Claim

Lacking: TypeAlias = Callable[[Configuration], Iterable[PlannedVisit]]
"""Says which visits of a configuration are lacking now, each as often as it is wanted."""


def task_of(job: PlannedVisit) -> str:
    """Return what is claimed for a job: its configuration, in each sort of workload."""
    return f"{job.access} {job.configuration.key}"


class Share:
    """One worker's share of rounds, claimed job by job."""

    def __init__(self, claims: Claims) -> None:
        """Share a list with whoever else claims of it."""
        self._claims = claims
        self._planned: dict[str, Counter[PlannedVisit]] = {}
        self._spare: Counter[PlannedVisit] = Counter()
        self._lacking: Lacking = lambda configuration: ()
        self.missed: set[str] = set()
        """Configurations (keys) that were another worker's when they came up."""

    def begin(self, rounds: Sequence[Sequence[PlannedVisit]], lacking: Lacking) -> None:
        """Hear which visits are planned, and how to ask what is lacking of one configuration."""
        self._planned, self._spare, self._lacking = {}, Counter(), lacking
        for job in (job for jobs in rounds for job in jobs):
            self._planned.setdefault(task_of(job), Counter())[job] += 1

    def unclaimed(self, plan: Plan) -> Plan:
        """Return a plan without what other workers have claimed."""
        others = self._claims.others()
        found = Plan(
            tuple(tuple(j for j in jobs if task_of(j) not in others) for jobs in plan.rounds)
        )
        kept = {job.configuration.key for jobs in found.rounds for job in jobs}
        self.missed |= {j.configuration.key for jobs in plan.rounds for j in jobs} - kept
        return found

    def is_mine(self, job: PlannedVisit) -> bool:
        """Return whether this worker is to make a visit now; claims what nobody has."""
        task = task_of(job)
        if not self._claims.has(task):
            if not self._claims.take(task):
                self.missed.add(job.configuration.key)
                return False
            left = Counter(self._lacking(job.configuration))
            for each, planned in self._planned[task].items():
                self._spare[each] = max(0, planned - left[each])
            if not left:
                self._claims.give_back([task])
        self._claims.renew_when_due()
        if self._spare[job]:
            self._spare[job] -= 1
            return False
        return True

    def claim(self, job: PlannedVisit) -> Claim:
        """Return the claim that a job's visits are stored under."""
        return self._claims.claim(task_of(job))

    def lose(self, job: PlannedVisit) -> None:
        """Give up a configuration that another worker took over."""
        self._claims.give_back([task_of(job)])
        self.missed.add(job.configuration.key)
