"""The state of each run that a question asks for, by the stored runs and the claims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opdb.store import RunState, Store

State: TypeAlias = Literal[
    "full",
    "partial",
    "done",
    "unsupported",
    "out of memory",
    "failed",
    "running",
    "left",
    "not here",
]
"""`full`, `partial`: of a sweep, all or some convolutions ran as asked for; elsewhere `done`.
`running`: a process has claimed it. `not here`: this machine cannot run it; its spec says why."""


class RunSpec(Protocol):
    """One run to make of a whole model."""

    @property
    def key(self) -> str:
        """The text that identifies the run; a claim of it has this name."""

    @property
    def why_not(self) -> str | None:
        """Why this machine cannot make the run; None where it can."""


Spec = TypeVar("Spec", bound=RunSpec)


@dataclass(frozen=True)
class Policy(ABC, Generic[Spec]):
    """A question's rules: which runs are the same, what a run's end means, what is retried.

    `devices` are the slugs of the devices whose runs count.
    """

    devices: tuple[str, ...]

    retry: ClassVar[Sequence[State]] = ("unsupported", "out of memory", "failed")
    """The states that a retry takes up."""

    waits: ClassVar[bool] = True
    """Whether the question needs the runs that another process is making, or leaves them out."""

    @abstractmethod
    def runs(self, store: Store, spec: Spec | None = None) -> list[RunState]:
        """Return the stored runs that the question looks at, oldest first; of one spec, or all."""

    @abstractmethod
    def scope(self, device: str) -> str:
        """Return the name of the list in which runs on a device (slug) are claimed."""

    @abstractmethod
    def identity(self, spec: Spec) -> Hashable:
        """Return what a spec has in common with the runs that are of it."""

    @abstractmethod
    def run_identity(self, run: RunState) -> Hashable | None:
        """Return what a run has in common with its spec; None of a run that answers no spec."""

    def ended(self, run: RunState) -> State:
        """Return the state of a spec whose run ended like this one."""
        if run.outcome == "ok":
            return "done"
        if run.outcome == "unsupported":
            return "unsupported"
        return "out of memory" if run.outcome == "out_of_memory" else "failed"


class RunTable(Generic[Spec]):
    """The state of each spec of a question: the last good run of it counts, else the last."""

    def __init__(
        self, policy: Policy[Spec], runs: Iterable[RunState], claimed: Collection[str] = ()
    ) -> None:
        """Take the runs, oldest first, and the keys of the specs that processes have claimed."""
        self._policy, self._claimed = policy, claimed
        good_last = sorted(runs, key=lambda run: run.outcome == "ok")
        self._runs = {policy.run_identity(run): run for run in good_last}
        self._runs.pop(None, None)

    @classmethod
    def read(cls, store: Store, policy: Policy[Spec]) -> RunTable[Spec]:
        """Read a question's runs and claims; the claims of dead processes are released first."""
        from opdb.store.claims import held, release_dead_claims

        release_dead_claims(store)
        scopes = set(map(policy.scope, policy.devices))
        claimed = {each.task for each in held(store) if each.scope in scopes and each.left_s > 0}
        return cls(policy, policy.runs(store), claimed)

    def run(self, spec: Spec) -> RunState | None:
        """Return the run that counts for a spec; None where it was never run."""
        return self._runs.get(self._policy.identity(spec))

    def state(self, spec: Spec) -> State:
        """Return the state of a spec."""
        if spec.key in self._claimed:
            return "running"
        run = self.run(spec)
        if run is None:
            return "left" if spec.why_not is None else "not here"
        return self._policy.ended(run)

    def pending(
        self, specs: Iterable[Spec], *, retry: bool = False, again: bool = False
    ) -> list[Spec]:
        """Return the specs to run here: those left, with `retry` also those that failed.

        With `again` also those that are done; never those that are running.
        """
        wanted: set[State] = {"left", *(self._policy.retry if retry else ())}
        here = [spec for spec in specs if spec.why_not is None]
        if again:
            return [spec for spec in here if self.state(spec) != "running"]
        return [spec for spec in here if self.state(spec) in wanted]
