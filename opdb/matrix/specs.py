"""The runs that a matrix asks for on a machine, and which stored runs answer it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opdb.bench.options import DriverOptions
from opdb.errors import UnknownNameError
from opdb.matrix.combination import Combination
from opdb.records import canonical_json
from opdb.runs.table import Policy, State

if TYPE_CHECKING:
    from opdb.store import RunState, Store


@dataclass(frozen=True)
class BackendDevice:
    """Where the runs of one backend are made: its name, the device (slug) and the board (UUID).

    `why_not` says why nothing can be run there, `why_no_amp` why not in mixed precision.
    """

    backend: str
    device: str = ""
    board: str = ""
    why_not: str | None = None
    why_no_amp: str | None = None


@dataclass(frozen=True)
class TrainingSpec:
    """One run of a matrix at the place where it is to be made."""

    combination: Combination
    place: BackendDevice

    @property
    def label(self) -> str:
        """The identity of the run among all of its device."""
        return self.combination.label(self.place.backend)

    @property
    def group(self) -> str:
        """The identity that its repeats share."""
        return self.combination.group(self.place.backend)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its properties besides model, batch size and number."""
        return self.combination.parts(self.place.backend)

    @property
    def key(self) -> str:
        """The text that identifies the run on its device; a claim of it has this name."""
        return f"matrix {self.label}"

    @property
    def options(self) -> DriverOptions:
        """The options of the training, its label among them."""
        return replace(self.combination.options, label=self.label)

    @property
    def why_not(self) -> str | None:
        """Why it cannot be run at its place; None where it can."""
        if self.place.why_not is None and self.combination.precision == "amp":
            return self.place.why_no_amp
        return self.place.why_not


def cells_of(
    combinations: Iterable[Combination], places: Mapping[str, BackendDevice]
) -> list[TrainingSpec]:
    """Return the runs of a matrix; those that `auto` and a backend's name both mean, once."""
    found: dict[str, TrainingSpec] = {}
    for combination in combinations:
        cell = TrainingSpec(combination, places[combination.backend])
        found.setdefault(cell.label, cell)
    return list(found.values())


def labelled(cells: Sequence[TrainingSpec], labels: Collection[str]) -> list[TrainingSpec]:
    """Return the runs of these labels; where none is given, all.

    Raises:
        UnknownNameError: the matrix has none of a label.
    """
    known = {cell.label for cell in cells}
    for label in labels:
        if label not in known:
            raise UnknownNameError("label", label, known)
    return [cell for cell in cells if not labels or cell.label in labels]


@dataclass(frozen=True)
class MatrixPolicy(Policy[TrainingSpec]):
    """A matrix counts the runs of a device that have its label and were made with its options."""

    retry = ("failed", "out of memory")
    waits = False

    def runs(self, store: Store, spec: TrainingSpec | None = None) -> list[RunState]:
        """Return the runs that have a label, oldest first; of one spec's device, or all."""
        devices = self.devices if spec is None else (spec.place.device,)
        each = [store.run_states(device=name, setting=None, naming="label") for name in devices]
        return [run for some in each for run in some if isinstance(run.facts.get("label"), str)]

    def scope(self, device: str) -> str:
        """Return the name of the list in which runs on a device (slug) are claimed."""
        return f"matrix {device}"

    def identity(self, spec: TrainingSpec) -> Hashable:
        """Return the device, label and options of a spec: anybody may give a run its label."""
        options = spec.combination.options
        of_run = canonical_json(options.setting), options.iters, options.warmup_iters
        return spec.place.device, spec.label, *of_run

    def run_identity(self, run: RunState) -> Hashable:
        """Return the device, label and options of a run."""
        facts = run.facts
        of_run = canonical_json(dict(run.setting)), facts.get("iters"), facts.get("warmup_iters")
        return run.device, facts["label"], *of_run

    def ended(self, run: RunState) -> State:
        """Return the state of a spec whose run ended like this one."""
        state = super().ended(run)
        return "failed" if state == "unsupported" else state
