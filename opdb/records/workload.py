"""What to run: an operator call without its numbers, and a model at work as its calls in order."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

# The words that records are written in, and the one text and key of a JSON value.

CONFIGURATION_FORMAT = 1
WORKLOAD_FORMAT = 1
SLUG_ALLOWED = "lower-case letters, digits, '-', '.' and '_', 100 at most, a letter or digit first"
"""The rule for a device's slug, in words."""

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


_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: Json) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, no NaN.

    Raises:
        ValueError: a float is NaN or infinite (the describer must spell those as objects).
    """
    return _CANONICAL.encode(value)


def is_slug(text: str) -> bool:
    """Return whether a text may name a device: it also stands in the names of files."""
    return _SLUG.fullmatch(text) is not None


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


def made(calls: Iterable[Call]) -> tuple[tuple[str, Form], ...]:
    """Return the kind and form of each call, in order."""
    return tuple([(call.configuration.kind, call.form) for call in calls])


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
    (they cost host time alone); `foreign_leaves` counts leaf modules that the registry does not
    rebuild (their functions are the operators); `unsupported` counts calls that no registered
    operator describes. `memory` is None where the harvest did not record it. `around` is the time
    of Python around the calls of an eager pass, as a number of containers; None: not timed.
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

    @property
    def containers_worth(self) -> float:
        """What the host does around the calls of an eager pass, in the time of so many containers.

        Where that was not timed, it is taken to enter and leave containers alone. It goes with host
        times that are quiet times (`opdb.predict.timeline.PredictionInputs.containers_in`).
        """
        return self.containers if self.around is None else self.around

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

    def __hash__(self) -> int:
        return hash(self.key)

    def occurrences(self) -> dict[Configuration, int]:
        """Return each distinct configuration with its number of calls, in first-call order."""
        return dict(self._occurrences)

    @cached_property
    def made(self) -> tuple[tuple[str, Form], ...]:
        """The kind and form of each call, in order; a model's passes of all sizes share it."""
        return made(self.calls)

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
        """Return what the model calls in a mode."""
        captured = self.captured if mode == CAPTURED_MODE else None
        return captured or self.workload


@dataclass(frozen=True)
class Stored:
    """A harvest and how it came to be known: from the database, or by harvesting just now.

    `harvest_s` is what the harvest took, in seconds; None of one that was stored before. `stale`
    counts the runs that were measured when the model made other calls. `unsaved` says why a harvest
    is not stored, where it is not.
    """

    found: Harvest
    stale: int = 0
    harvest_s: float | None = None
    unsaved: str | None = None

    @property
    def workload(self) -> Workload:
        """The calls of the model."""
        return self.found.workload

    @property
    def stood(self) -> bool:
        """Whether it was stored before."""
        return self.harvest_s is None

    def in_mode(self, mode: Mode) -> Workload:
        """Return what the model calls in a mode, as far as it is not stored beside the workload."""
        return self.found.in_mode(mode)
