"""From a name to a model with example inputs; one file a source.

Importing this package imports no torch: what it names is data. `load` imports the source it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opdb.distribution import install
from opdb.errors import InputError, UnknownModelError, UnknownNameError
from opdb.records import Json, Phase

if TYPE_CHECKING:
    import torch

    from opdb.models.source import Source

__all__ = [
    "AUTOCASTS",
    "CACHES",
    "DTYPES",
    "EXPERTS",
    "GENERATION_PHASES",
    "MEMORY_FORMATS",
    "OPTIMIZERS",
    "PHASES",
    "QUANTIZED",
    "LoadedModel",
    "ModelRequest",
    "is_fixed",
    "load",
    "load_to_look",
    "missing_library",
    "names",
    "sources",
]

_SOURCES = {
    "builtin": "opdb.models.builtin",
    "torchvision": "opdb.models.torchvision",
    "transformers": "opdb.models.transformers",
    "python": "opdb.models.python",
}
"""Every source, in the order in which a bare name is looked up: each module has a SOURCE."""

TOKENS = 128
"""The tokens of a text, unless the model has positions for fewer."""

DTYPES = ("float32", "float64", "float16", "bfloat16")
MEMORY_FORMATS = ("contiguous", "channels_last")
GENERATION_PHASES = ("prefill", "decode", "generate")
"""What a causal decoder does: read a prompt into an empty cache, add one token to a sequence, or
both by transformers' own `generate`, with all that it calls in between."""

PHASES = ("inference", "training", *GENERATION_PHASES)
CACHES = ("static", "dynamic")
"""The caches of keys and values: allocated at once and written in place, or grown by each step."""

EXPERTS = ("batched_mm", "grouped_mm")
"""How a mixture's experts are multiplied: by a weight gathered for each row, or in groups."""

QUANTIZED = ("fp8",)
"""What linear layers may be quantized to."""

AUTOCASTS = ("bfloat16", "float16")
OPTIMIZERS = ("sgd", "adamw")
"""The optimizers that a training step may end with: SGD with a momentum of 0.9, or AdamW."""


@dataclass(frozen=True)
class ModelRequest:
    """A request for a model: which one to load, and for which work.

    `source` None is found from the name. `weights` None means random weights; nothing is ever
    downloaded otherwise. `input_size` is one input's shape without the batch. `inputs` describes
    inputs that a size cannot express, as data:

        {"args": [{"shape": ["batch", 128], "dtype": "int64", "values": {"range": [0, 30522]}}],
         "kwargs": {...}}

    where "batch" stands for the batch size, a list for a list, {"tuple": [...]} for a tuple, any
    other object for a dict, and everything else for itself.

    `context`, `cache_length` and `cache` are of a causal decoder's prefill or decoding step: how
    many positions are filled before a step, how many a static cache has (as many as the pass
    needs, unless given), and which cache it is (static, unless given). The prompt of a prefill, or
    of a whole generation of `max_new_tokens`, is its input size. `experts` is how those of a
    mixture are multiplied: unless given, in groups in a prefill and gathered in a step, as
    transformers' `generate` does on a GPU. `imbalance` is how unevenly a router fills groups (see
    `opdb.kinds.linear.active_groups`), `quantize` what linear layers are quantized to.

    `named_in` is the file, or other data of somebody's, that names the model, where no code may be
    run that it names; None where the user names it, or allows the code.
    """

    name: str
    source: str | None = None
    weights: str | None = None
    batch_size: int = 1
    input_size: tuple[int, ...] | None = None
    dtype: str = "float32"
    memory_format: str = "contiguous"
    phase: Phase = "inference"
    autocast: str | None = None
    inputs: Mapping[str, Json] | None = None
    num_classes: int | None = None
    optimizer: str = OPTIMIZERS[0]
    accumulation: int = 1
    context: int | None = None
    max_new_tokens: int | None = None
    cache_length: int | None = None
    cache: str | None = None
    experts: str | None = None
    imbalance: float | None = None
    quantize: str | None = None
    named_in: str | None = field(default=None, compare=False, repr=False)

    @property
    def training(self) -> Json | None:
        """How a training step is made, as data; None of an inference.

        `accumulation` is of how many batches gradients add up before the optimizer steps.
        """
        if self.phase != "training":
            return None
        return {"optimizer": self.optimizer, "accumulation": self.accumulation}

    @property
    def new_tokens(self) -> int:
        """How many tokens of each sequence a prefill or a decoding step is given."""
        if self.phase == "decode":
            return 1
        return TOKENS if self.input_size is None else self.input_size[0]

    @property
    def filled(self) -> int:
        """How many positions of the cache are filled before the pass."""
        return (self.context or 0) if self.phase == "decode" else 0

    @property
    def generation(self) -> dict[str, Json] | None:
        """Which cache a prefill or a decoding step has, as data; None of other passes."""
        if self.phase not in GENERATION_PHASES:
            return None
        found: dict[str, Json] = {"cache": self.cache or CACHES[0]}
        if self.phase == "decode":
            found["context"] = self.filled
        if self.phase == "generate":
            found["max_new_tokens"] = self.max_new_tokens or TOKENS
        elif found["cache"] == "static":
            found["cache_length"] = self.cache_length or self.filled + self.new_tokens
        for name in ("experts", "imbalance", "quantize"):
            if (value := getattr(self, name)) is not None:
                found[name] = value
        return found

    def checked(self) -> ModelRequest:
        """Return the request with its source found, all of it valid.

        Raises:
            InputError: a value is not among the allowed; the message names the nearest. Or a file
                names the model by an import path, whose code it would run.
        """
        for what, value, valid in (
            ("dtype", self.dtype, DTYPES),
            ("memory format", self.memory_format, MEMORY_FORMATS),
            ("phase", self.phase, PHASES),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("autocast", self.autocast or AUTOCASTS[0], AUTOCASTS),
            ("cache", self.cache or CACHES[0], CACHES),
            ("experts", self.experts or EXPERTS[0], EXPERTS),
            ("quantization", self.quantize or QUANTIZED[0], QUANTIZED),
        ):
            if value not in valid:
                raise UnknownNameError(what, value, valid)
        if self.autocast is not None and self.dtype != "float32":
            raise InputError(f"{self.name!r} in {self.dtype}: autocast is of a model in float32")
        if self.batch_size < 1:
            raise InputError(f"batch size {self.batch_size} of {self.name!r}; give 1 or more")
        if self.accumulation < 1:
            raise InputError(f"gradients of {self.accumulation} batches; give 1 or more")
        if self.input_size is not None and (not self.input_size or min(self.input_size) < 1):
            size = list(self.input_size)
            raise InputError(f"input size {size} of {self.name!r}; give sizes of 1 or more")
        if self.input_size is not None and self.inputs is not None:
            raise InputError(f"{self.name!r} has both an input size and inputs; give one of them")
        self._check_generation()
        source = _source_name(self)
        if self.named_in is not None and _source(source).runs_code:
            raise InputError(
                f"{self.named_in}: model {self.name!r} is an import path: to load it runs that "
                "module's code, which no file is trusted with; where you trust it, add --allow-code"
            )
        return replace(self, source=source)

    def _check_generation(self) -> None:
        """Check what is said of a prefill or a decoding step.

        Raises:
            InputError: it contradicts itself, or is said of another pass.
        """
        said = {
            "context": self.context,
            "new tokens": self.max_new_tokens,
            "cache length": self.cache_length,
            **{name: getattr(self, name) for name in ("cache", "experts", "imbalance", "quantize")},
        }
        given = [name for name, value in said.items() if value is not None]
        found = self.generation
        if found is None:
            if given:
                raise InputError(
                    f"{given[0]} of {self.name!r}: only prefill and decode have one, and generate"
                )
            return
        if self.autocast is not None:
            raise InputError(f"{self.name!r}: {self.phase} under autocast; give a dtype instead")
        self._check_products()
        if self.inputs is not None:
            raise InputError(f"{self.name!r}: {self.phase} has inputs of its own; leave them out")
        if self.phase != "generate" and self.max_new_tokens is not None:
            raise InputError(f"new tokens of {self.name!r}: only the phase generate has any")
        if self.phase == "generate" and self.cache_length is not None:
            raise InputError(f"generate of transformers allocates {self.name!r}'s cache by itself")
        if self.phase != "decode" and self.context is not None:
            what = f"a {self.phase} of {self.name!r}"
            raise InputError(f"{what} begins with an empty cache: no context")
        if self.phase == "decode" and self.filled < 1:
            raise InputError(f"a decoding step of {self.name!r} needs a context of 1 or more")
        if self.phase == "decode" and self.input_size is not None:
            raise InputError(f"a decoding step of {self.name!r} takes one token: no input size")
        if self.input_size is not None and len(self.input_size) != 1:
            size = list(self.input_size)
            raise InputError(f"input size {size} of {self.name!r}; a prompt is one number")
        if found["cache"] == "dynamic" and self.cache_length is not None:
            raise InputError(f"a dynamic cache of {self.name!r} grows: it has no cache length")
        needed = self.filled + self.new_tokens
        if self.cache_length is not None and self.cache_length < needed:
            raise InputError(
                f"a cache of {self.cache_length} positions is too short for {self.name!r}: "
                f"the pass needs {needed}"
            )

    def _check_products(self) -> None:
        """Check what is said of how a decoder multiplies.

        Raises:
            InputError: its dtype cannot be quantized, or the imbalance is no number of 0 or more.
        """
        if self.quantize is not None and self.dtype != "bfloat16":
            raise InputError(
                f"{self.name!r} in {self.dtype}: scaled products of fp8 give bfloat16; add --dtype "
                "bfloat16"
            )
        if self.imbalance is not None and not 0 <= self.imbalance < math.inf:
            raise InputError(f"imbalance {self.imbalance} of {self.name!r}; give 0 or more")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be called: module(*args, **kwargs), all on one device.

    `inputs` describes args and kwargs as data, batch included. `batch_size` is that of the inputs.
    `known` pairs tensors on meta with their values on the CPU: those of buffers and example inputs
    that hold indices or masks (see `opdb.models.known.KnownValues`).
    """

    name: str
    source: str
    source_version: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Mapping[str, Json]
    batch_size: int
    known: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()


def sources() -> list[str]:
    """Return the names of the sources."""
    return list(_SOURCES)


def names(source: str | None = None) -> list[str]:
    """Return the model names of a source, or of all (a source of import paths has none).

    Raises:
        UnknownNameError: there is no such source.
    """
    chosen = sources() if source is None else [source]
    return sorted({name for each in chosen for name in _source(each).names()})


def is_fixed(checked: ModelRequest) -> bool:
    """Return whether a checked request's name stands for one model as long as packages do."""
    assert checked.source is not None
    return _source(checked.source).fixed


def load(request: ModelRequest, *, device: str) -> LoadedModel:
    """Load a model and its example inputs onto a device ("meta", "cpu", "cuda" or "cuda:1").

    The module is in eval mode (train mode for the training phase), of the request's dtype and
    memory format. On "meta" nothing is allocated: parameters move there as they are registered.

    Raises:
        InputError: the request is not valid, or the model cannot be built; the message says why.
    """
    from opdb.models.construction import load_from

    checked = request.checked()
    assert checked.source is not None
    return load_from(_source(checked.source), checked, device)


def load_to_look(request: ModelRequest) -> LoadedModel:
    """Load a model that is to be looked at: on meta, or on the CPU where it cannot be built there.

    Raises:
        InputError: the request is not valid, or the model cannot be built; the message says why.
    """
    from opdb.models.construction import ModelFailureError, check_fits

    try:
        return load(request, device="meta")
    except ModelFailureError as on_meta:
        check_fits(on_meta.weights_bytes, on_meta)
        return load(request, device="cpu")


def missing_library(error: ModuleNotFoundError, needed: str) -> InputError:
    """Return the error to raise in place of one of an import, where a package is not installed."""
    return InputError(
        f"{needed} the Python package {error.name!r} is needed, and it is not installed: "
        f"{install()}"
    )


def _source(name: str) -> Source:
    if name not in _SOURCES:
        raise UnknownNameError("source", name, _SOURCES)
    try:
        source: Source = import_module(_SOURCES[name]).SOURCE
    except ModuleNotFoundError as error:
        raise missing_library(error, f"for models of {name}") from error
    return source


def _source_name(request: ModelRequest) -> str:
    if request.source is not None:
        source = _source(request.source)
        if not source.has(request.name):
            what = f"{request.source} model"
            valid = source.names()
            raise UnknownModelError(request.name, valid, hint=source.hint(), what=what)
        return request.source
    for name in _likeliest_first(request.name):
        if _source(name).has(request.name):
            return name
    hints = filter(None, (_source(name).hint() for name in _SOURCES))
    raise UnknownModelError(request.name, names(), hint=" ".join(hints))


def _likeliest_first(model: str) -> Iterator[str]:
    """Yield the sources in their order, before the others the one that the catalogue names.

    To ask a source imports its library, torchvision in seconds; the catalogue reads its files.
    """
    from opdb.models.catalogue import catalogue

    yield next(iter(_SOURCES))  # opdb's own, which imports nothing
    yield from [each.source for each in catalogue() if each.name == model][:1]
    yield from _SOURCES
