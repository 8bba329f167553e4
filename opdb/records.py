"""The frozen records that every stage exchanges.

What to run (`Configuration`, `Workload`) is kept apart from what was seen (`Visit`, `HostVisit`,
`ModelRun`) and from what is derived (`Cost`). Quantities are base SI with the unit in the name.
Nothing here imports torch or a database.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

# The words that records are written in, and the one text and key of a JSON value.

CONFIGURATION_FORMAT = 1
WORKLOAD_FORMAT = 1
GRADIENTS = "gradients"
"""The input of a backward pass that lists the gradients of the call's outputs."""

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict of the same."""

Form: TypeAlias = Literal["module", "function"]
Mode: TypeAlias = Literal[
    "eager",
    "graph",
    "compile",
    "compile:reduce-overhead",
    "compile:max-autotune",
    "dynamo",
    "trace",
]
"""How work is issued: unchanged, as one CUDA graph, by torch.compile (after the colon the mode that
it is told), as dynamo's graphs without a compiler, as a graph that torch.jit traced."""

COMPILED_MODES: tuple[Mode, ...] = ("compile", "compile:reduce-overhead")
"""Modes that run the kernels which inductor makes by default."""

CAPTURED_MODE: Mode = "graph"
"""The mode that runs what a model calls while a CUDA graph captures it."""

Phase: TypeAlias = Literal["inference", "training", "prefill", "decode", "generate"]

DECODING: tuple[Phase, ...] = ("decode", "generate")  # which give new tokens one by one

Role: TypeAlias = Literal["measurement", "limited", "anchor", "duplicate"]
"""`limited`: the power limit pulled the clock down, so the visit counts for that clock alone.
`duplicate`: a measurement made once more, blind, to see whether stated intervals hold."""

Weights: TypeAlias = Literal["cold", "hot"]
Outputs: TypeAlias = Literal["fresh", "reused"]
"""Where calls write: to memory that the L2 has evicted, or to that of the output before last."""

Access: TypeAlias = Literal["model", "reused", "streamed", "chain"]
"""What calls find in the caches: `model`: what they find inside a model; `reused`: one input, one
set of weights; `streamed`: inputs that step through a large array; `chain`: the output before."""

Before: TypeAlias = Literal["itself", "code", "stream"]
"""What ran before a call, but for the kernels that write its inputs: the same call; a kernel with
more code than an instruction cache holds; a stream through more memory than the L2 holds."""

ALGORITHM_SETTING = "convolution_algorithm"
"""The setting that names the algorithm which a convolution was forced to take.

Where it is absent, torch chose. Measurements under it never stand in for usual ones."""

ELSEWHERE = "elsewhere"
"""The fact of a run under an algorithm that names its convolutions which ran otherwise, and how;
absent: none did."""

Outcome: TypeAlias = Literal["ok", "unsupported", "out_of_memory", "error"]


_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: Json) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, no NaN.

    Raises:
        ValueError: a float is NaN or infinite (the describer must spell those as objects).
    """
    return _CANONICAL.encode(value)


def is_forced(setting: str) -> bool:
    """Return whether a visit's setting (JSON text) forced a convolution to take an algorithm."""
    return f'"{ALGORITHM_SETTING}":' in setting


@dataclass(frozen=True, eq=False)
class Configuration:
    """One operator call without its numbers: what is measured, and what a database row is about.

    `parameters` holds the named arguments that are not tensors, defaults left out; `inputs` holds
    the named arguments that are or contain tensors, each tensor as a spec:

        {"shape": [32, 3, 224, 224], "dtype": "float32"}

    with, only where it differs from the default, `layout` ("channels_last" or a list of strides),
    `values` (a value class, see docs/design.md), `role` ("weight" for a parameter or buffer), and
    `gradient` (False where gradients are taken and the tensor needs none).
    A tensor that already occurred earlier in the same call is {"same": i}, i counting the call's
    tensors in order.

    The backward pass of a call is its configuration with the pass "backward". Where its outputs'
    gradients are not one for each output in the output's layout, or hold zeros, the input
    `gradients` lists them, None for an output without.
    """

    kind: str
    parameters: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Json] = field(default_factory=dict)
    gradient: bool = False
    autocast: str | None = None
    pass_name: str = "forward"

    @cached_property
    def json(self) -> str:
        """The canonical JSON text; equal configurations have equal text."""
        document: dict[str, Json] = {"format": CONFIGURATION_FORMAT, "kind": self.kind}
        if self.parameters:
            document["parameters"] = dict(self.parameters)
        if self.inputs:
            document["inputs"] = dict(self.inputs)
        if self.gradient:
            document["gradient"] = True
        if self.autocast is not None:
            document["autocast"] = self.autocast
        if self.pass_name != "forward":
            document["pass"] = self.pass_name
        return canonical_json(document)

    @cached_property
    def key(self) -> str:
        """The SHA-256 (hex) of the canonical JSON."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def forward(self) -> Configuration:
        """The call that this one is the backward pass of; itself where it is none."""
        if self.pass_name != "backward":
            return self
        inputs = {name: value for name, value in self.inputs.items() if name != GRADIENTS}
        return replace(self, inputs=inputs, pass_name="forward")

    @property
    def title(self) -> str:
        """The kind, with its pass where that is not the forward one: "conv2d backward"."""
        return self.kind if self.pass_name == "forward" else f"{self.kind} {self.pass_name}"

    @property
    def issued_as(self) -> str:
        """The text that a call's host time depends on, shapes hardly: "conv2d gradient autocast".

        Autograd records a call whose gradients are taken, and autocast casts what it is given.
        """
        records = ["gradient"] if self.gradient and self.pass_name == "forward" else []
        casts = ["autocast"] if self.autocast is not None else []
        return " ".join([self.title, *records, *casts])

    @classmethod
    def from_json(cls, text: str) -> Configuration:
        """Read a configuration back from its JSON text.

        Raises:
            ValueError: the text is not a configuration of a format this version reads.
        """
        document = json.loads(text)
        if not isinstance(document, dict) or "kind" not in document:
            raise ValueError(f"not a configuration: {text[:80]!r}")
        if document.get("format") != CONFIGURATION_FORMAT:
            raise ValueError(
                f"configuration format {document.get('format')!r}; "
                f"this version reads {CONFIGURATION_FORMAT}"
            )
        return cls(
            kind=document["kind"],
            parameters=document.get("parameters", {}),
            inputs=document.get("inputs", {}),
            gradient=document.get("gradient", False),
            autocast=document.get("autocast"),
            pass_name=document.get("pass", "forward"),
        )

    @classmethod
    def from_canonical(cls, text: str) -> Configuration:
        """Read a configuration back from its own `json`, which is not written anew then.

        Raises:
            ValueError: the text is not a configuration of a format this version reads.
        """
        found = cls.from_json(text)
        vars(found)["json"] = text  # where the cached property keeps it
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)


@dataclass(frozen=True)
class Call:
    """One operator call of a workload: the configuration and the form in which it was called.

    `path` is that of the module called, of a function that of the module whose forward calls it,
    "" where that is the model itself or nobody's; None where it is not known, as of what is stored.
    """

    configuration: Configuration
    form: Form
    path: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class PassMemory:
    """The memory that one pass of a model was seen to take as it was harvested, in bytes.

    `weight_bytes` are parameters and buffers, `input_bytes` the example inputs. `activation_bytes`
    is the most that was live at once of what the pass made, gradients of parameters left out;
    `gradient_bytes` are these, all of them, and `peak_bytes` is the most that was live of both.
    `cache_bytes` are those of `weight_bytes` that have the batch in their shape, such as a static
    cache of keys and values (None: not recorded apart).
    """

    weight_bytes: int
    input_bytes: int
    activation_bytes: int
    gradient_bytes: int
    peak_bytes: int
    cache_bytes: int | None = None


@dataclass(frozen=True)
class Workload:
    """A model at work: what identifies it, and the sequence of operator calls it makes.

    `inputs` describes the example inputs as data ({"args": [...], "kwargs": {...}}, tensors as
    specs), so that the workload can be rebuilt without guessing. `compiled_for` is the device
    (slug) that torch.compile made the calls for, fused groups among them; None: as the model
    stands. `captured` says that they are what the model calls while a CUDA graph captures it, where
    it asks and then calls something else. `containers` counts module calls that are not operators
    (they cost host time alone); `foreign_leaves` is of older harvests alone; `unsupported` counts
    calls that no registered operator describes. `memory` is None where the harvest did not record
    it. `around` is the time of Python around the calls of an eager pass, as a number of containers;
    None: not timed.
    """

    name: str
    source: str
    source_version: str
    inputs: Mapping[str, Json]
    batch_size: int
    dtype: str
    memory_format: str
    phase: Phase = "inference"
    gradient: bool = False
    autocast: str | None = None
    calls: tuple[Call, ...] = ()
    containers: int = 0
    foreign_leaves: Mapping[str, int] = field(default_factory=dict)
    unsupported: Mapping[str, int] = field(default_factory=dict)
    compiled_for: str | None = None
    captured: bool = False
    memory: PassMemory | None = field(default=None, compare=False)
    around: float | None = field(default=None, compare=False)

    @cached_property
    def key(self) -> str:
        """The SHA-256 (hex) of what identifies the workload; not of what it was found to call."""
        document: dict[str, Json] = {
            "format": WORKLOAD_FORMAT,
            "name": self.name,
            "source": self.source,
            "inputs": dict(self.inputs),
            "dtype": self.dtype,
            "memory_format": self.memory_format,
            "phase": self.phase,
            "gradient": self.gradient,
            "autocast": self.autocast,
        }
        if self.compiled_for is not None:
            document["compiled_for"] = self.compiled_for
        if self.captured:
            document["captured"] = True
        return hashlib.sha256(canonical_json(document).encode()).hexdigest()

    @cached_property
    def model_key(self) -> str:
        """The key of the same work as the model stands: model runs are stored under it."""
        if self.compiled_for is None and not self.captured:
            return self.key
        return replace(self, compiled_for=None, captured=False).key

    def __hash__(self) -> int:
        return hash(self.key)

    def occurrences(self) -> dict[Configuration, int]:
        """Return each distinct configuration with its number of calls, in first-call order."""
        return dict(self._occurrences)

    @cached_property
    def made(self) -> tuple[tuple[str, Form], ...]:
        """The kind and form of each call, in order; a model's passes of all sizes share it."""
        return tuple([(call.configuration.kind, call.form) for call in self.calls])

    @cached_property
    def _occurrences(self) -> dict[Configuration, int]:
        counts: dict[Configuration, int] = {}
        calls = {id(call): call for call in self.calls}  # one object stands for many calls
        for which, times in Counter(map(id, self.calls)).items():
            configuration = calls[which].configuration
            counts[configuration] = counts.get(configuration, 0) + times
        return counts


# The result of a harvest, and the parts of it that are stored.


@dataclass(frozen=True)
class Harvest:
    """The calls of a model, and those while a CUDA graph captures it, where they differ.

    `failure` says why the latter is not known of a model that asks whether it is captured.
    A harvest of the same `fingerprint` finds the same; None where that is not known. `notes` say
    in words what else is unusual about how it was found.
    """

    workload: Workload
    captured: Workload | None = None
    failure: str | None = None
    fingerprint: str | None = None
    notes: tuple[str, ...] = ()

    def in_mode(self, mode: Mode) -> Workload:
        captured = self.captured if mode == CAPTURED_MODE else None
        return captured or self.workload


@dataclass(frozen=True)
class Stored:
    """A harvest and how it came to be known: from the database, or by harvesting just now.

    `harvest_s` is what the harvest took, in seconds; None of one that was stored before. `unsaved`
    says why a harvest is not stored, where it is not.
    """

    found: Harvest
    harvest_s: float | None = None
    unsaved: str | None = None

    @property
    def workload(self) -> Workload:
        return self.found.workload

    @property
    def stood(self) -> bool:
        """Whether it was stored before."""
        return self.harvest_s is None

    def in_mode(self, mode: Mode) -> Workload:
        """Return what the model calls in a mode, as far as it is not stored beside the workload."""
        return self.found.in_mode(mode)


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
    updates; `clock_samples` are in Hz.
    `answering` names what has ever answered: "samples", "counter", "clock".
    """

    duration_s: float
    power_samples: Series = ()
    counter_edges: Series = ()
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
