"""Runs of whole models: which of them a question lacks, by the stored runs and the claims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from opdb.records import Json, Mode
from opdb.spec import ModelSpec, describe

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
    @property
    def key(self) -> str:
        """The text that identifies the run; a claim of it has this name."""

    @property
    def label(self) -> str: ...

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

    @abstractmethod
    def runs(self, store: Store) -> list[RunState]: ...

    @abstractmethod
    def scope(self, device: str) -> str: ...

    @abstractmethod
    def identity(self, spec: Spec) -> Hashable: ...

    @abstractmethod
    def run_identity(self, run: RunState) -> Hashable | None:
        """Return what a run has in common with its spec; None of a run that answers no spec."""

    def ended(self, run: RunState) -> State:
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
        self._policy, self._claimed = policy, claimed
        good_last = sorted(runs, key=lambda run: run.outcome == "ok")
        self._runs = {policy.run_identity(run): run for run in good_last}
        self._runs.pop(None, None)

    @classmethod
    def read(cls, store: Store, policy: Policy[Spec]) -> RunTable[Spec]:
        from opdb.store.claims import held

        scopes = set(map(policy.scope, policy.devices))
        claimed = {each.task for each in held(store) if each.scope in scopes}
        return cls(policy, policy.runs(store), claimed)

    def run(self, spec: Spec) -> RunState | None:
        return self._runs.get(self._policy.identity(spec))

    def state(self, spec: Spec) -> State:
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


@dataclass(frozen=True)
class ModelRunSpec:
    """One run of a model in a mode, on any of these boards (UUIDs).

    `workload` is the key under which the run is stored. Two processes that ask for the same run on
    the same boards make it once; a run on other boards is another run.
    """

    request: ModelSpec
    workload: str
    mode: Mode
    boards: tuple[str, ...]

    why_not: ClassVar[None] = None

    @property
    def key(self) -> str:
        return f"run {self.mode} on {','.join(sorted(self.boards))} {self.workload}"

    @property
    def label(self) -> str:
        return f"{self.request.name} {describe(self.request)} {self.mode}"


@dataclass(frozen=True)
class ModelPolicy(Policy[ModelRunSpec]):
    """Count the runs of these boards, made as boards of these devices under one setting.

    A board under another power limit is a board of another device. The runs in `ignored` (ids) do
    not count.
    """

    boards: tuple[str, ...]
    setting: Mapping[str, Json] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def runs(self, store: Store) -> list[RunState]:
        return [
            run
            for board in self.boards
            for run in store.run_states(board=board, setting=self.setting)
            if run.device in self.devices and run.id not in self.ignored
        ]

    def without_stored(self, store: Store) -> Self:
        """Return the policy that counts only runs that are not stored yet.

        So a run is made however many are stored; but not twice, where two processes ask for it at
        the same time.
        """
        return replace(self, ignored=frozenset(run.id for run in self.runs(store)))

    def scope(self, device: str) -> str:
        return f"runs {device}"

    def identity(self, spec: ModelRunSpec) -> Hashable:
        return spec.workload, spec.mode

    def run_identity(self, run: RunState) -> Hashable:
        return run.workload, run.mode


# The options of a training run beyond its model.

BACKENDS = ("auto", "cuda", "mps", "cpu")
"""Where a training may run; `auto` is a GPU where there is one."""

PRECISIONS = ("fp32", "amp")
"""In which precision: `amp` is under autocast."""


@dataclass(frozen=True)
class ImageOptions:
    """A folder with one folder of images a class, and how it is read.

    `augment` crops and mirrors at random. `workers` processes read ahead, `prefetch_factor` batches
    each (None: as PyTorch does).
    """

    folder: Path
    augment: bool = True
    workers: int = 4
    pin_memory: bool = False
    prefetch_factor: int | None = None


@dataclass(frozen=True)
class DriverOptions:
    """How to run a training: which backend settings, on which data, for how long.

    Without `images` it trains on the model's example inputs, which stay on the device. `iters`
    iterations are timed `repeats` times, after `warmup_iters` that are not.
    """

    deterministic: bool = False
    cudnn_benchmark: bool = False
    images: ImageOptions | None = None
    warmup_iters: int = 10
    iters: int = 50
    repeats: int = 3
    nvtx: bool = False
    label: str | None = None
    note: str | None = None

    @property
    def setting(self) -> dict[str, Json]:
        told: dict[str, Json] = {}
        if self.deterministic:
            told["deterministic"] = True
        if self.cudnn_benchmark:
            told["cudnn_benchmark"] = True
        if self.images is not None:
            told["data"] = {
                "augment": self.images.augment,
                "workers": self.images.workers,
                "pin_memory": self.images.pin_memory,
                "prefetch_factor": self.images.prefetch_factor,
            }
        return told
