"""The runs that a matrix asks for on a machine, and in what state each is by what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opdb.errors import UnknownNameError
from opdb.matrix.combination import Combination
from opdb.store import RunState

State: TypeAlias = Literal["done", "out of memory", "failed", "running", "left", "not here"]
STATES: tuple[State, ...] = ("done", "out of memory", "failed", "running", "left", "not here")
"""`running`: a process has claimed it. `not here`: this machine cannot run it; there is a why."""

FINAL: tuple[State, ...] = ("done", "out of memory")


@dataclass(frozen=True)
class Place:
    """Where the runs of one backend are made: its name, the device (slug) and the board (UUID).

    `why_not` says why nothing can be run there, `why_no_amp` why not in mixed precision.
    """

    backend: str
    device: str = ""
    board: str = ""
    why_not: str | None = None
    why_no_amp: str | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a matrix at the place where it is to be made."""

    combination: Combination
    place: Place

    @property
    def label(self) -> str:
        """What tells the run from every other of its device."""
        return self.combination.label(self.place.backend)

    @property
    def group(self) -> str:
        """What tells it from all but its repeats."""
        return self.combination.group(self.place.backend)

    @property
    def parts(self) -> tuple[str, ...]:
        """What it is besides its model, batch size and number."""
        return self.combination.parts(self.place.backend)

    @property
    def task(self) -> str:
        """What a claim of it is called."""
        return f"matrix {self.label}"

    @property
    def why_not(self) -> str | None:
        """Why it cannot be run at its place; None where it can."""
        if self.place.why_not is None and self.combination.precision == "amp":
            return self.place.why_no_amp
        return self.place.why_not


def claims_scope(device: str) -> str:
    """Return the name of the list of which runs are claimed on a device (slug)."""
    return f"matrix {device}"


def cells_of(combinations: Iterable[Combination], places: Mapping[str, Place]) -> list[Cell]:
    """Return the runs of a matrix; those that `auto` and a backend's name both mean, once."""
    found: dict[str, Cell] = {}
    for combination in combinations:
        cell = Cell(combination, places[combination.backend])
        found.setdefault(cell.label, cell)
    return list(found.values())


def labelled(cells: Sequence[Cell], labels: Collection[str]) -> list[Cell]:
    """Return the runs of these labels; where none is given, all.

    Raises:
        UnknownNameError: the matrix has none of a label.
    """
    known = {cell.label for cell in cells}
    for label in labels:
        if label not in known:
            raise UnknownNameError("label", label, known)
    return [cell for cell in cells if not labels or cell.label in labels]


class Standing:
    """Where the runs of a matrix stand, by what is stored of their devices."""

    def __init__(
        self, states: Mapping[str, Iterable[RunState]], claimed: Collection[str] = ()
    ) -> None:
        """Take each device's labelled runs, oldest first, and the tasks that are claimed.

        Of a label the last good run counts, else its last.
        """
        self._claimed = claimed
        self._states: dict[tuple[str, str], list[RunState]] = {}
        for device, some in states.items():
            for each in some:
                self._states.setdefault((device, each.facts["label"]), []).append(each)

    def run(self, cell: Cell) -> RunState | None:
        """Return the run that stands for a cell; None where it was never run."""
        found = self._states.get((cell.place.device, cell.label), [])
        made = [state for state in found if _is_of(state, cell)]
        good = [state for state in made if state.outcome == "ok"]
        standing = good or made
        return standing[-1] if standing else None

    def state(self, cell: Cell) -> State:
        """Return the state of a cell."""
        if cell.task in self._claimed:
            return "running"
        run = self.run(cell)
        if run is None:
            return "left" if cell.why_not is None else "not here"
        if run.outcome == "ok":
            return "done"
        return "out of memory" if run.outcome == "out_of_memory" else "failed"

    def pending(self, cells: Sequence[Cell], wanted: Collection[State]) -> list[Cell]:
        """Return the cells in these states that can be run where they are."""
        return [c for c in cells if c.why_not is None and self.state(c) in wanted]

    def counts(self, cells: Sequence[Cell]) -> Counter[State]:
        """Count the cells in each state."""
        return Counter(map(self.state, cells))


def _is_of(state: RunState, cell: Cell) -> bool:
    """Return whether a run is what its label says: anybody may have given it that name."""
    options, facts = cell.combination.options, state.facts
    said = {"iters": options.iters, "warmup_iters": options.warmup_iters}
    return dict(state.setting) == options.setting and all(
        facts.get(name) == value for name, value in said.items()
    )
