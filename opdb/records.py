"""The frozen records that every stage exchanges.

What to run (`Configuration`, `Workload`) is kept apart from what was seen (`Visit`, `HostVisit`,
`ModelRun`) and from what is derived (`Cost`). Quantities are base SI with the unit in the name.
Nothing here imports torch or a database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

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
"""How work is issued: as it stands, as one CUDA graph, by torch.compile (after the colon the mode
that it is told), as dynamo's graphs without a compiler, as a graph that torch.jit traced."""

COMPILED_MODES: tuple[Mode, ...] = ("compile", "compile:reduce-overhead")
"""Modes that run the kernels which inductor makes by default."""

CAPTURED_MODE: Mode = "graph"
"""The mode that runs what a model calls while a CUDA graph captures it."""

Phase: TypeAlias = Literal["inference", "training"]
Role: TypeAlias = Literal["measurement", "limited", "anchor", "duplicate"]
"""`limited`: the power limit pulled the clock down, so the visit tells of that clock alone.
`duplicate`: a measurement made once more, blind, to see whether stated intervals hold."""

Weights: TypeAlias = Literal["cold", "hot"]
Access: TypeAlias = Literal["model", "reused", "streamed", "chain"]
"""What calls find in the caches: `model`: what they find inside a model; `reused`: one input, one
set of weights; `streamed`: inputs that step through a large array; `chain`: the output before."""

ALGORITHM_SETTING = "convolution_algorithm"
"""The setting that names the algorithm which a convolution was forced to take.

Where it is absent, torch chose. What was measured under it is never taken for the usual."""

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


def content_key(value: Json) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


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
    gradients are not one for each output in the output's layout, the input `gradients` lists them,
    None for an output without.
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

    @property
    def gradients(self) -> list[Json] | None:
        """The specs of the outputs' gradients in a backward pass; None: as the outputs are."""
        found = self.inputs.get(GRADIENTS)
        return None if found is None else list(found)

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
    """One operator call of a workload: the configuration and the form in which it was called."""

    configuration: Configuration
    form: Form


@dataclass(frozen=True)
class Workload:
    """A model at work: what identifies it, and the sequence of operator calls it makes.

    `inputs` describes the example inputs as data ({"args": [...], "kwargs": {...}}, tensors as
    specs), so that the workload can be rebuilt without guessing. `compiled_for` is the device
    (slug) that torch.compile made the calls for, fused groups among them; None: as the model
    stands. `captured` says that they are what the model calls while a CUDA graph captures it, where
    it asks and then calls something else. `containers` counts module calls that are not operators
    (they cost host time alone); `foreign_leaves` counts leaf modules that the registry does not
    rebuild (their functions are the operators); `unsupported` counts calls that no registered
    operator describes.
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
        return content_key(document)

    @cached_property
    def model_key(self) -> str:
        """The key of the same work as the model stands: model runs are stored under it."""
        if self.compiled_for is None and not self.captured:
            return self.key
        return replace(self, compiled_for=None, captured=False).key

    def occurrences(self) -> dict[Configuration, int]:
        """Return each distinct configuration with its number of calls, in first-call order."""
        return dict(self._occurrences)

    @cached_property
    def _occurrences(self) -> dict[Configuration, int]:
        counts: dict[Configuration, int] = {}
        for call in self.calls:
            counts[call.configuration] = counts.get(call.configuration, 0) + 1
        return counts


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
    """What one campaign found out about its board and meters before measuring.

    `transition_s` is what a kernel takes longer where different operators follow one another. A
    missing quantity is None and `notes` says why.
    """

    base_power_w: float | None
    base_power_interval_w: tuple[float, float] | None
    container_time_s: float | None
    sample_period_s: float | None
    sample_lag_s: float | None
    counter_period_s: float | None
    notes: tuple[str, ...] = ()
    transition_s: float | None = None


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
    """What tests of one board, under one driver and power limit, found out about its meters.

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
    """

    calls: int
    times_s: tuple[float, ...]
    alone_s: tuple[float, ...]


@dataclass(frozen=True)
class Visit:
    """One bounded measurement of one configuration in a campaign, raw.

    `stretch` times the calls; where an operator works in place, its input is restored before
    every call and `restore` times the restoring alone, to be subtracted. `cost_s` is the device
    time the visit took, everything included. `kernels` counts kernel names for one call, None
    where they could not be seen.
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


@dataclass(frozen=True)
class HostVisit:
    """Host time of one form of one configuration, measured among other operators.

    `times_s` are the host times of single calls, in the random order of the rounds.
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

    Each repeat is one `Stretch` whose "calls" are whole passes of the model. `layers` maps a
    leaf module's path to its mean time in place (seconds, a pass), where that was asked for.
    `setting` holds what the backend was told for this run beyond its campaign's settings; a run
    with any is not compared with usual ones. `facts` are what else is kept of it, by name:
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
    """What hardware counters saw of one kernel: values by metric, in base units; None: not seen."""

    name: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Profile:
    """What hardware counters saw of one call of a configuration on a board, kernel by kernel.

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


@dataclass(frozen=True)
class Quantity:
    """An estimated quantity: median, 3σ-mean, and the 95 % confidence interval of the mean.

    `low` and `high` are None where one visit stands alone and nothing says how visits spread.
    """

    median: float
    mean: float
    low: float | None
    high: float | None
    count: int

    def moved(self, by: float) -> Quantity:
        """Return the quantity with another mean and the same width."""
        return Quantity(
            self.median + by,
            self.mean + by,
            None if self.low is None else self.low + by,
            None if self.high is None else self.high + by,
            self.count,
        )


@dataclass(frozen=True)
class OperatingPoint:
    """One call in another state than usual: what its visits there saw, on average.

    At a lowered clock (visits at the power limit), or with weights that stayed in the L2.
    """

    clock_hz: float | None
    time_s: float
    dynamic_energy_j: float | None


@dataclass(frozen=True)
class Cost:
    """What one call of a configuration costs on one board, derived from its visits.

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
    reasons: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def is_estimated(self) -> bool:
        """Whether it was learned from other configurations: it has a time and no visit."""
        return self.visits == 0 and self.time_s is not None
