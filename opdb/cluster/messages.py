"""What a worker and the process that drives it tell each other, through a pipe of their own.

Nothing is shared between workers, no lock and no queue: one that is killed takes nothing along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opdb.bench.model import RunOptions
from opdb.bench.platform import Platform
from opdb.bench.run import BenchRequest, BenchResult
from opdb.bench.sweep import SweepOptions
from opdb.models import ModelRequest
from opdb.records import Configuration, Mode, ModelRun, Outcome, Visit
from opdb.sweep.cells import Cell

# To a worker


@dataclass(frozen=True)
class Bench:
    """Bench what is pending; `workers` measure on this host at once."""

    request: BenchRequest
    workers: int


@dataclass(frozen=True)
class Measure:
    """Measure models, asking for one after another."""

    options: RunOptions
    workers: int


@dataclass(frozen=True)
class Sweep:
    """Measure the cells of a sweep that nobody else has."""

    cells: tuple[Cell, ...]
    options: SweepOptions
    workers: int


@dataclass(frozen=True)
class Job:
    """A model to measure: its request, its workload's key, the mode."""

    request: ModelRequest
    workload: str
    mode: Mode


@dataclass(frozen=True)
class NoMore:
    """There is no further model to measure."""


@dataclass(frozen=True)
class Go:
    """Go on: it is your turn, or all have had theirs."""


# From a worker


@dataclass(frozen=True)
class Ready:
    """The worker has its device."""

    platform: Platform


@dataclass(frozen=True)
class Said:
    """What a campaign tells of a step that is no visit."""

    text: str


@dataclass(frozen=True)
class Began:
    """So many visits are planned."""

    visits: int


@dataclass(frozen=True)
class Visited:
    """A visit is done and saved; raw samples are left out."""

    configuration: Configuration
    visit: Visit
    cost_s: float


@dataclass(frozen=True)
class Turn:
    """The worker waits for its turn to have the host, or has had it."""

    state: Literal["awaited", "over"]


@dataclass(frozen=True)
class Next:
    """The worker asks for a model; the last one, if any, is measured and saved."""

    run: ModelRun | None


@dataclass(frozen=True)
class Swept:
    """A cell is measured and saved; `reason` says why it has no numbers, where it has none."""

    cell: Cell
    outcome: Outcome
    reason: str | None


@dataclass(frozen=True)
class Finished:
    """The task is done; `result` is a bench's."""

    result: BenchResult | None


@dataclass(frozen=True)
class Failed:
    """The worker's task failed; the exit status that its error asks for."""

    message: str
    exit_status: int
    claim_lost: bool = False
