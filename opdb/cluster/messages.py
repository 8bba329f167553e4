"""What a worker and the process that drives it tell each other, through a pipe of their own.

Nothing is shared between workers, no lock and no queue: one that is killed takes nothing along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from opdb.bench.platform import Platform
from opdb.bench.request import BenchRequest
from opdb.bench.run import BenchResult
from opdb.records import Configuration, ModelRun, Visit
from opdb.runs.table import RunSpec
from opdb.runs.work import Answer, Work

# To a worker


@dataclass(frozen=True)
class Bench:
    """Bench what is pending; `workers` measure on this host at once."""

    request: BenchRequest
    workers: int


@dataclass(frozen=True)
class Make:
    """Make the runs of models that nobody else makes; `workers` measure on this host at once."""

    work: Work[Any]
    specs: tuple[RunSpec, ...]
    workers: int


@dataclass(frozen=True)
class Answered:
    """Whether the run that was asked for may begin."""

    answer: Answer


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
    """A visit is done and saved; of its raw samples, those of the stretch are here."""

    configuration: Configuration
    visit: Visit
    cost_s: float


@dataclass(frozen=True)
class Turn:
    """The worker waits for its turn to have the host, or has had it."""

    state: Literal["awaited", "over"]


@dataclass(frozen=True)
class Asked:
    """The worker asks whether the run of a spec (key) may begin."""

    key: str


@dataclass(frozen=True)
class Made:
    """The run of a spec (key) is made and saved."""

    key: str
    run: ModelRun


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
