"""Making the runs that a question lacks: each claimed, made by one process, and stored."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias

from opdb.errors import ClaimLostError
from opdb.records import Board
from opdb.runs.progress import Progress
from opdb.runs.table import Policy, RunTable, Spec
from opdb.store.claims import Claims, release_dead_claims

if TYPE_CHECKING:
    from opdb.store import Store

LOOK_EVERY_S = 1.0
"""How often to check whether another process has finished the awaited run."""

Answer: TypeAlias = Literal["go", "skip", "stop"]
"""Whether a run may begin; `stop` ends the work."""


Make: TypeAlias = Callable[[Spec, Claims], Any]
"""Makes the run of a spec and stores it under its claim; returns how it ended, None where it is not
stored. Where it raises ClaimLostError another process took the run over, and stores it."""


@dataclass(frozen=True)
class Work(ABC, Generic[Spec]):
    """Makes runs of a question in one process; it is sent to the workers of a crew.

    With `retry` runs are made that failed before, with `again` even those that are done.
    """

    policy: Policy[Spec]
    retry: bool = False
    again: bool = False

    @abstractmethod
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> AbstractContextManager[tuple[str, str, Make[Spec]]]:
        """Open a device ("cuda", "cpu"); yield its slug, its board (UUID) and how to make runs.

        `workers` measure on this host at once.

        Raises:
            CannotMeasureError: there is no such device.
        """

    def run(
        self,
        store: Store,
        specs: Sequence[Spec],
        device: str | None,
        ask: Callable[[Spec], Answer],
        workers: int = 1,
    ) -> Iterator[tuple[Spec, Any]]:
        """Make runs on one device; yield each spec with its run as soon as that is stored.

        A run is claimed when its turn comes, so that processes may share a list. A run that another
        process has made meanwhile, or took over, is left out. `ask` says of each whether it may
        begin.

        Raises:
            CannotMeasureError: there is no such device, or it stopped answering.
        """
        if not specs:
            return
        with (
            self.opened(store, device, workers) as (slug, board, make),
            Claims(store, self.policy.scope(slug), board) as claims,
        ):
            for spec in _claimed(store, claims, specs, waits=self.policy.waits):
                answer = ask(spec) if self.pending(store, [spec]) else "skip"
                if answer == "stop":
                    return
                run = None
                if answer == "go":
                    with suppress(ClaimLostError):
                        run = make(spec, claims)
                if run is not None:
                    yield spec, run
                claims.give_back([spec.key])

    def pending(self, store: Store, specs: Sequence[Spec]) -> list[Spec]:
        """Return the specs whose runs are to be made, also those that other processes claimed."""
        runs = self.policy.runs(store, specs[0] if len(specs) == 1 else None)
        return RunTable(self.policy, runs).pending(specs, retry=self.retry, again=self.again)


def _claimed(store: Store, claims: Claims, specs: Iterable[Spec], *, waits: bool) -> Iterator[Spec]:
    """Yield specs as they are claimed; those of other processes last.

    With `waits` until the others have finished; else only where their processes died.
    """
    release_dead_claims(store)
    of_others = []
    for spec in specs:
        if claims.take(spec.key):
            yield spec
        else:
            of_others.append(spec)
    while of_others:
        release_dead_claims(store)
        left = []
        for spec in of_others:
            if claims.take(spec.key):
                yield spec
            else:
                left.append(spec)
        of_others = left if waits else []
        if of_others:
            time.sleep(LOOK_EVERY_S)


class Maker(Protocol):
    """Who makes runs: this process on one device, or a crew of workers on several."""

    @property
    def boards(self) -> Sequence[Board]:
        """The boards that there are to measure on."""

    @property
    def failures(self) -> Sequence[str]:
        """Why each device that failed did, its name first."""

    def make(
        self, work: Work[Spec], specs: Sequence[Spec], ask: Callable[[Spec, str], Answer]
    ) -> Iterator[tuple[str, Spec, Any]]:
        """Make runs; yield the device's name, the spec and the run once it is stored.

        `ask` receives each run with its device's name before it begins.
        """


@dataclass(frozen=True)
class Here:
    """This process, on one device, which messages need not name."""

    store: Store
    device: str | None
    boards: Sequence[Board] = ()
    failures: Sequence[str] = ()

    def make(
        self, work: Work[Spec], specs: Sequence[Spec], ask: Callable[[Spec, str], Answer]
    ) -> Iterator[tuple[str, Spec, Any]]:
        """Make runs on the device; see `Work.run`."""
        for spec, run in work.run(self.store, specs, self.device, lambda spec: ask(spec, "")):
            yield "", spec, run


def execute(
    on: Maker,
    work: Work[Spec],
    specs: Sequence[Spec],
    shown: Progress,
    name: Callable[[Spec], str],
    may_begin: Callable[[Spec], Answer] = lambda _: "go",
) -> Iterator[tuple[Spec, str, Any]]:
    """Make runs and show progress; yield spec, name and run of each as soon as it is stored.

    The name ends with the device where there are several. `may_begin` says of each run whether it
    may begin. Ctrl-C leaves what was finished stored.

    Raises:
        CannotMeasureError: there is no such device, or none answers any more.
    """

    def named(spec: Spec, device: str) -> str:
        return f"{name(spec)} on {device}" if device else name(spec)

    def ask(spec: Spec, device: str) -> Answer:
        answer = may_begin(spec)
        if answer == "go":
            shown.doing(named(spec, device))
        return answer

    for device, spec, run in on.make(work, specs, ask):
        yield spec, named(spec, device), run
        shown.done()
