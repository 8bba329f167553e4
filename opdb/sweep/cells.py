"""The cells of a sweep, and in what state each is by the runs that are stored of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from opdb.algorithms.names import Algorithm
from opdb.models import ModelRequest
from opdb.records import ALGORITHM_SETTING, ELSEWHERE, Json, Mode

if TYPE_CHECKING:
    from opdb.store import RunState

State: TypeAlias = Literal["full", "partial", "unsupported", "failed", "running", "left"]
STATES: tuple[State, ...] = ("full", "partial", "unsupported", "failed", "running", "left")
"""`partial`: a convolution of the model ran otherwise. `failed`: an error, or out of memory.
`running`: a worker has claimed it."""

DONE: tuple[State, ...] = ("full", "partial", "unsupported")


@dataclass(frozen=True)
class Cell:
    """One whole-model run to make: a model at an input size, its convolutions by an algorithm.

    `workload` is the key of what was harvested. Cells hang on nothing but themselves, so several
    workers may share a list of them, each taking those whose `task` nobody else took.
    """

    request: ModelRequest
    workload: str
    size: int
    algorithm: Algorithm
    mode: Mode

    @property
    def task(self) -> str:
        """What tells the cell from every other, as text."""
        return f"sweep {self.mode} {self.algorithm.slug} {self.workload}"

    @property
    def setting(self) -> Mapping[str, Json]:
        """The setting under which its run is stored: torch's own way, too, has a name here."""
        return {ALGORITHM_SETTING: self.algorithm.name}


def state_of(outcome: str, facts: Mapping[str, Json]) -> State:
    """Return the state of a cell whose run ended so."""
    if outcome == "ok":
        return "partial" if facts.get(ELSEWHERE) else "full"
    return "unsupported" if outcome == "unsupported" else "failed"


class Standing:
    """Where the cells of a sweep stand, by what is stored of a device's runs."""

    def __init__(self, states: Iterable[RunState], claimed: Collection[str] = ()) -> None:
        """Take the runs, oldest first: the last good one of a cell counts, else its last.

        `claimed` are the tasks of the cells that workers are at.
        """
        self._claimed = claimed
        self._states: dict[tuple[str, str, str], RunState] = {}
        for each in states:
            key = each.workload, str(each.setting.get(ALGORITHM_SETTING)), each.mode
            known = self._states.get(key)
            if known is None or known.outcome != "ok" or each.outcome == "ok":
                self._states[key] = each

    def run(self, cell: Cell) -> RunState | None:
        """Return the run that stands for a cell; None where it was never run."""
        return self._states.get((cell.workload, cell.algorithm.name, cell.mode))

    def state(self, cell: Cell) -> State:
        """Return the state of a cell."""
        if cell.task in self._claimed:
            return "running"
        run = self.run(cell)
        return "left" if run is None else state_of(run.outcome, run.facts)

    def pending(self, cells: Sequence[Cell], *, retry: bool = False) -> list[Cell]:
        """Return the cells that were never run; with `retry` those that failed, too."""
        wanted: tuple[State, ...] = ("left", "failed") if retry else ("left",)
        return [cell for cell in cells if self.state(cell) in wanted]

    def seconds(self, cells: Sequence[Cell]) -> dict[tuple[str, str], list[float]]:
        """Return what the runs of cells took, by model and algorithm."""
        found: dict[tuple[str, str], list[float]] = {}
        for cell in cells:
            run = self.run(cell)
            took = found.setdefault((cell.request.name, cell.algorithm.name), [])
            took += [] if run is None else [run.cost_s]
        return found

    def counts(self, cells: Sequence[Cell]) -> dict[tuple[str, str], Counter[State]]:
        """Count the states of cells by model and algorithm."""
        found: dict[tuple[str, str], Counter[State]] = {}
        for cell in cells:
            counts = found.setdefault((cell.request.name, cell.algorithm.name), Counter())
            counts[self.state(cell)] += 1
        return found
