"""What to run: an operator call without its numbers, and a model at work as its calls in order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from opdb.records.words import (
    CONFIGURATION_FORMAT,
    GRADIENTS,
    WORKLOAD_FORMAT,
    Form,
    Json,
    Phase,
    canonical_json,
    content_key,
)


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
