"""Raw measurements: visits of operators, host times, runs of whole models, hardware counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from opdb.records.board import Board
from opdb.records.words import Access, Before, Form, Json, Mode, Outcome, Outputs, Role, Weights


@dataclass(frozen=True)
class Stretch:
    """The raw record of one steady stretch of replays: events, power samples, clock, counter.

    `replay_times_s` are event times of consecutive replays of `calls_per_replay` calls each.
    `power_samples` are (seconds since the stretch began, watts); `counter_edges` are (seconds,
    joules since the first edge) at update edges of the energy counter. `busy_share` is the share
    of the stretch in which the device worked (1 for back-to-back replays; less where gaps were
    left on purpose). `eager_times_s` are event times of single calls issued eagerly while the
    device was held up, so that it never waited for the host: what remains is the device's own
    time and the gaps between its kernels. `utilization` is the share of time in which the driver
    saw a kernel run.
    """

    calls_per_replay: int
    replay_times_s: tuple[float, ...]
    duration_s: float
    busy_share: float
    power_samples: tuple[tuple[float, float], ...] = ()
    counter_edges: tuple[tuple[float, float], ...] = ()
    clock_samples_hz: tuple[float, ...] = ()
    temperature_c: float | None = None
    eager_times_s: tuple[float, ...] = ()
    utilization: float | None = None


@dataclass(frozen=True)
class Neighbours:
    """Event times of calls among the kernels that a model runs between two of them.

    One kernel writes the call's inputs anew; where weights are to be cold, another streams through
    memory beyond the L2. `times_s` are event times of replays of `calls` calls with these
    neighbours, `alone_s` of the neighbours alone; what the call takes is their difference.
    `after` holds such times of fewer calls by what ran before each; it is empty where that was not
    measured.
    """

    calls: int
    times_s: tuple[float, ...]
    alone_s: tuple[float, ...]
    after: Mapping[Before, Neighbours] = field(default_factory=dict)


@dataclass(frozen=True)
class Visit:
    """One bounded measurement of one configuration in a campaign, raw.

    `stretch` times the calls; where an operator works in place, its input is restored before every
    call and `restore` times the restoring alone, to be subtracted. `cost_s` is the device time the
    visit took, everything included. `kernels` counts kernel names for one call, None where they
    could not be seen. `outputs` is None in visits from before it was stored, and `wrote_to` says
    what they did.
    """

    id: str
    campaign: str
    configuration: str
    setting: str
    role: Role
    outcome: Outcome
    reason: str | None
    started_at: str
    cost_s: float
    issue: Literal["graph", "eager"]
    weights: Weights
    copies: int
    stretch: Stretch | None
    restore: Stretch | None
    kernels: Mapping[str, int] | None
    flags: tuple[str, ...] = ()
    access: Access = "model"
    neighbours: Neighbours | None = None
    outputs: Outputs | None = None

    @property
    def wrote_to(self) -> Outputs:
        """Where the calls wrote; in visits without it, to fresh memory where weights are cold."""
        return self.outputs or ("fresh" if self.weights == "cold" else "reused")


@dataclass(frozen=True)
class HostVisit:
    """Host time of one form of one configuration, measured among other operators.

    `times_s` are mean times of a call in blocks of rounds (of older versions: times of single
    calls); those of other calls with the same campaign and start are of the same blocks.
    """

    id: str
    campaign: str
    configuration: str
    form: Form
    started_at: str
    times_s: tuple[float, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibratedCall:
    """Host times of a call that a calibration of the host saw, as a `HostVisit` has them."""

    configuration: str
    form: Form
    started_at: str
    times_s: tuple[float, ...]


@dataclass(frozen=True)
class HostCalibration:
    """Host times of stored workloads (keys), by which this host is held against those of boards.

    They belong to no campaign, so that no cost rests on them. `host` is the host's id, `board` the
    one that was driven.
    """

    id: str
    host: str
    board: Board
    measured_at: str
    environment: Mapping[str, str | None]
    workloads: tuple[str, ...]
    calls: tuple[CalibratedCall, ...]

    @property
    def visits(self) -> list[HostVisit]:
        """The same as host visits, of a campaign that is the calibration."""
        return [
            HostVisit(
                self.id, self.id, each.configuration, each.form, each.started_at, each.times_s
            )
            for each in self.calls
        ]


@dataclass(frozen=True)
class ModelRun:
    """A whole workload measured on one board: the truth that predictions are checked against.

    Each repeat is one `Stretch` whose "calls" are whole passes of the model. `layers` maps a leaf
    module's path to its mean time in place (seconds, a pass), where that was asked for. `setting`
    holds what the backend was told for this run beyond its campaign's settings; a run with any is
    not compared with usual ones. `facts` hold everything else that is kept of it, by name:
    quantities in base SI with the unit in the name, and words.
    """

    id: str
    campaign: str
    workload: str
    mode: Mode
    outcome: Outcome
    reason: str | None
    started_at: str
    cost_s: float
    repeats: tuple[Stretch, ...]
    peak_memory_bytes: int | None
    kernels: Mapping[str, int] | None
    layers: Mapping[str, float] | None = None
    flags: tuple[str, ...] = ()
    setting: Mapping[str, Json] = field(default_factory=dict)
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelCounts:
    """Hardware counters of one kernel: values by metric, in base units; None: not seen."""

    name: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Profile:
    """Hardware counters of one call of a configuration on a board, kernel by kernel.

    `definition` says which metrics were collected for which quantity, each with its weight.
    `environment` holds the versions that are known, the profiler's (ncu) among them.
    """

    id: str
    board: Board
    configuration: str
    setting: str
    measured_at: str
    environment: Mapping[str, str | None]
    definition: Mapping[str, Mapping[str, float]]
    kernels: tuple[KernelCounts, ...]
