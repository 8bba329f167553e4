"""What is measured, on which board and host, and the costs that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from opdb.records.workload import Access, Before, Form, Json, Mode, Outcome, Outputs, Role, Weights

# The place of a measurement: device, board, host, and how far its meters can be trusted.


@dataclass(frozen=True)
class Device:
    """A class of device: what a cost is about. `name` is the vendor's, `slug` the folder's."""

    slug: str
    name: str
    type: Literal["cuda", "cpu"]
    power_limit_w: float | None
    memory_bytes: int | None
    l2_bytes: int | None
    max_clock_hz: float | None


@dataclass(frozen=True)
class Board:
    """One physical device, by the UUID its driver reports."""

    uuid: str
    device: str


@dataclass(frozen=True)
class Host:
    """The machine that issues the work: CPU model, core count, operating system."""

    id: str
    cpu: str
    cores: int
    system: str


@dataclass(frozen=True)
class Calibration:
    """One campaign's findings about its board and meters before measuring.

    `transition_s` is the extra time of a kernel that follows a different operator, `tiny_kernel_s`
    the time of a kernel of 32 numbers in a CUDA graph of 200 of them, which tells in what state the
    device started kernels (None in campaigns from before 2026-11-27). A missing quantity is None
    and `notes` says why.
    """

    base_power_w: float | None
    base_power_interval_w: tuple[float, float] | None
    container_time_s: float | None
    sample_period_s: float | None
    sample_lag_s: float | None
    counter_period_s: float | None
    notes: tuple[str, ...] = ()
    transition_s: float | None = None
    tiny_kernel_s: float | None = None

    def __post_init__(self) -> None:
        if self.base_power_w is not None and self.base_power_w < 0:
            raise ValueError(f"base power of {self.base_power_w} W")


Series: TypeAlias = tuple[tuple[float, float], ...]
"""(seconds, value), in order."""


@dataclass(frozen=True)
class Trace:
    """Everything that a board's meters showed over some time, each value with its moment.

    Times count from the beginning of the trace, in seconds. `power_samples` (W) are the driver's
    ring, at the times that it stamps; `counter_edges` (J since the first) are the energy counter's
    updates, `instant_samples` (W) those of the instant power; `clock_samples` are in Hz.
    `answering` names what has ever answered: "samples", "counter", "instant", "clock".
    """

    duration_s: float
    power_samples: Series = ()
    counter_edges: Series = ()
    instant_samples: Series = ()
    clock_samples: Series = ()
    answering: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeterTest:
    """One test of a board's meters: what was found, what was allowed, and in words what it means.

    `passed` is None where the test could not be made; `words` then says why.
    """

    name: str
    passed: bool | None
    value: float | None
    bound: float | None
    words: str


@dataclass(frozen=True)
class BoardCalibration:
    """The findings of the tests of one board's meters, under one driver and power limit.

    `facts` are measured quantities by name, base SI with the unit in the name; a missing one is
    None and a note says why.
    """

    id: str
    board: Board
    driver: str | None
    power_limit_w: float | None
    measured_at: str
    environment: Mapping[str, str | None]
    cost_s: float
    facts: Mapping[str, float | None]
    tests: tuple[MeterTest, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Campaign:
    """One stretch of measuring on one board, with the environment and calibration it ran under.

    `environment` holds driver, cuda, cudnn, torch, python, opdb (version strings, None where
    absent). `settings` holds what the backend was told.
    """

    id: str
    board: Board
    device: Device
    host: Host
    started_at: str
    environment: Mapping[str, str | None]
    settings: Mapping[str, Json]
    calibration: Calibration


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


# Quantities derived from visits: the cost of one call on one board.

UNKNOWN = 50.0
"""An interval that reaches so far (logarithms) says nothing; floats would not hold farther ends."""


def positive_interval(value: float, below: float, above: float) -> tuple[float, float]:
    """Return the ends of a positive value's interval, these logarithms below and above it."""
    return value * math.exp(-min(below, UNKNOWN)), value * math.exp(min(above, UNKNOWN))


OTHER_DTYPE = "other dtype"
OTHER_KINDS = "other kinds"
ROOFLINE_ALONE = "roofline alone"
"""Flags of an estimate that rests on no measured operator of its kind and dtype: on those of its
kind in another dtype, on those of other kinds of its family, or on a roofline alone."""

BETWEEN = "between"
"""The flag of an estimate that lies on a line through measured costs of the same call at other
sizes."""


@dataclass(frozen=True)
class Quantity:
    """An estimated quantity: median, 3σ-mean, and the 95 % confidence interval of the mean.

    The interval is symmetric on logarithms, so that it stays above 0; only that of a difference
    which may lie below 0 (dynamic energy) is mean ± half width. `low` and `high` are None where
    one visit stands alone and nothing says how visits spread.
    """

    median: float
    mean: float
    low: float | None
    high: float | None
    count: int

    @classmethod
    def around(
        cls,
        median: float,
        mean: float,
        half_width: float | None,
        count: int,
        *,
        positive: bool = True,
    ) -> Quantity:
        """Return a quantity whose interval reaches a half width (None: there is none) each way.

        On logarithms, as mean · exp(± half width / mean); as mean ± half width where the quantity
        may be 0 or less (not `positive`) and the interval reaches 0.
        """
        if half_width is None:
            return cls(median, mean, None, None, count)
        if mean <= 0 or not (positive or half_width < mean):
            return cls(median, mean, mean - half_width, mean + half_width, count)
        low, high = positive_interval(mean, half_width / mean, half_width / mean)
        return cls(median, mean, low, high, count)

    @property
    def value(self) -> float:
        """The mean."""
        return self.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, as given to `around`; None where there is none."""
        if self.low is None or self.high is None:
            return None
        if self.low > 0:
            return self.mean * math.log(self.high / self.low) / 2
        return (self.high - self.low) / 2

    def moved(self, by: float) -> Quantity:
        """Return it with another mean and the same half width; moved by 0 itself, to the bit."""
        if not by:
            return self
        positive = self.low is not None and self.low > 0
        return Quantity.around(
            self.median + by, self.mean + by, self.half_width, self.count, positive=positive
        )


def mean_of(quantity: Quantity | None) -> float:
    """Return a quantity's mean; 0 where there is none, in a sum of what is known."""
    return quantity.mean if quantity else 0.0


@dataclass(frozen=True)
class OperatingPoint:
    """One call in another state than usual: what its visits there saw, on average.

    At a lowered clock (visits at the power limit), or with weights that stayed in the L2.
    """

    clock_hz: float | None
    time_s: float
    dynamic_energy_j: float | None

    def scaled(self, time: float, energy: float) -> OperatingPoint:
        """Return it with its time and its dynamic energy so many times as large."""
        energy_j = None if self.dynamic_energy_j is None else self.dynamic_energy_j * energy
        return replace(self, time_s=self.time_s * time, dynamic_energy_j=energy_j)


@dataclass(frozen=True)
class AfterOthers:
    """What a call takes longer where other kernels have run since its own were launched last (s).

    `code_s` is that of code that is no longer held: a difference of two times, which may lie a
    little below 0. `stream_s` comes on top where more has gone through the L2 since than it holds;
    it is the board's usual one for each different kernel (None: the board has none).
    """

    code_s: float
    stream_s: float | None


@dataclass(frozen=True)
class Cost:
    """The cost of one call of a configuration on one board, derived from its visits.

    Any quantity may be None; `reasons` then says why, by the quantity's name. `time_s` and the
    energies are per call inside a CUDA graph, with the device kept busy; `eager_time_s` is the
    device's time when the call is issued eagerly, the gaps between kernels included (None where
    the two are one, as on a CPU); `host_time_s` is what the issuing thread spends, by form.
    """

    configuration: str
    board: str
    setting: str
    estimator: str
    visits: int
    kernels: int | None
    time_s: Quantity | None
    eager_time_s: Quantity | None
    power_w: Quantity | None
    energy_j: Quantity | None
    dynamic_energy_j: Quantity | None
    host_time_s: Mapping[Form, Quantity] = field(default_factory=dict)
    clock_hz: float | None = None
    limited: OperatingPoint | None = None
    hot: OperatingPoint | None = None
    after_others: AfterOthers | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def is_estimated(self) -> bool:
        """Whether it was learned from other configurations: it has a time and no visit."""
        return self.visits == 0 and self.time_s is not None

    @property
    def impossible(self) -> str | None:
        """Say which quantity no visits can give: one that is not finite, or negative.

        Energy above base power may be negative, and the lower end of an interval.
        """
        named = {f"host_time_s of a {form}": held for form, held in self.host_time_s.items()}
        for name in ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j"):
            named[name] = getattr(self, name)
        for name, held in named.items():
            if held is None:
                continue
            if not all(map(math.isfinite, (held.median, held.mean, held.low or 0, held.high or 0))):
                return f"{name} is not finite"
            if name != "dynamic_energy_j" and min(held.median, held.mean) < 0:
                return f"{name} is negative"
        return None


@dataclass(frozen=True)
class RunRatio:
    """What a run of a whole model shows of the sum of its operators: predicted / measured.

    `kernel_s` is the mean time of its kernels (seconds). Where it `waits` for its host, the energy
    is that which the sum would have, had the pass taken the measured time; None: not known.
    """

    time: float
    energy: float | None
    kernel_s: float | None
    waits: bool


RunRatios: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, RunRatio | None]]]"
"""By mode, board (UUID) and workload (key); None where a part of the sum has no cost."""
