"""The runs that a sweep asks for, and which stored runs answer it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from opdb.algorithms.names import Algorithm
from opdb.models import ModelRequest
from opdb.records import ALGORITHM_SETTING, ELSEWHERE, Json, Mode
from opdb.runs.table import Policy, State

if TYPE_CHECKING:
    from opdb.store import RunState, Store

STATES: tuple[State, ...] = ("full", "partial", "unsupported", "failed", "running", "left")
"""`partial`: a convolution of the model ran otherwise. `failed`: an error, or out of memory."""


class Group(NamedTuple):
    """What the runs of one sweep differ by, apart from their sizes."""

    model: str
    batch_size: int
    dtype: str
    memory_format: str
    mode: Mode
    algorithm: str


@dataclass(frozen=True)
class SweepSpec:
    """One whole-model run to make: a model at an input size, its convolutions by an algorithm.

    `workload` is the key of what was harvested.
    """

    why_not: ClassVar[None] = None

    request: ModelRequest
    workload: str
    size: int
    algorithm: Algorithm
    mode: Mode

    @property
    def key(self) -> str:
        """The text that identifies the run; a claim of it has this name."""
        return f"sweep {self.mode} {self.algorithm.slug} {self.workload}"

    @property
    def group(self) -> Group:
        """What the run shares with those of other sizes."""
        of = self.request
        workload = of.batch_size, of.dtype, of.memory_format
        return Group(of.name, *workload, self.mode, self.algorithm.name)

    @property
    def setting(self) -> Mapping[str, Json]:
        """The setting of the stored run; torch's own choice of algorithms has a name here, too."""
        return {ALGORITHM_SETTING: self.algorithm.name}


def state_of(outcome: str, facts: Mapping[str, Json]) -> State:
    """Return the state of a spec whose run ended like this."""
    if outcome == "ok":
        return "partial" if facts.get(ELSEWHERE) else "full"
    return "unsupported" if outcome == "unsupported" else "failed"


@dataclass(frozen=True)
class SweepPolicy(Policy[SweepSpec]):
    """A sweep counts the runs of its device under a named algorithm, whichever board made them."""

    retry = ("failed",)
    waits = False

    def runs(self, store: Store, spec: SweepSpec | None = None) -> list[RunState]:
        """Return the runs under named algorithms, oldest first; of one spec, or all."""
        workload, setting = (None, None) if spec is None else (spec.workload, spec.setting)
        each = [
            store.run_states(workload, device=device, setting=setting, naming=ALGORITHM_SETTING)
            for device in self.devices
        ]
        return [run for some in each for run in some if ALGORITHM_SETTING in run.setting]

    def scope(self, device: str) -> str:
        """Return the name of the list in which runs on a device (slug) are claimed."""
        return f"sweep {device}"

    def identity(self, spec: SweepSpec) -> Hashable:
        """Return the workload, algorithm and mode of a spec."""
        return spec.workload, spec.algorithm.name, spec.mode

    def run_identity(self, run: RunState) -> Hashable:
        """Return the workload, algorithm and mode of a run."""
        return run.workload, run.setting.get(ALGORITHM_SETTING), run.mode

    def ended(self, run: RunState) -> State:
        """Return the state of a spec whose run ended like this one."""
        return state_of(run.outcome, run.facts)


def by_group(specs: Sequence[SweepSpec]) -> dict[Group, list[SweepSpec]]:
    """Return the specs group by group, all sizes of a group together."""
    found: dict[Group, list[SweepSpec]] = {}
    for spec in specs:
        found.setdefault(spec.group, []).append(spec)
    return found
