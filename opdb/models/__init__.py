"""From a name to a model with example inputs.

Importing this package imports no torch: what it names is data. `load` imports the source it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opdb.distribution import install
from opdb.errors import InputError, UnknownNameError
from opdb.records import Json
from opdb.spec import MEMORY_FORMATS, SOURCES, ModelSpec, is_import_path

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be called: module(*args, **kwargs), all on one device.

    `inputs` describes args and kwargs as data, batch included. `batch_size` is that of the inputs.
    `dtype` is that of floating-point parameters and example inputs: several joined by "+", in the
    order in which they occur. What an option changed is in `inputs["built"]`, as it was built.
    `known` pairs tensors on meta with their values on the CPU: those of buffers and example inputs
    that hold indices or masks (see `opdb.models.known.KnownValues`).
    """

    name: str
    source: str
    source_version: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Mapping[str, Json]
    batch_size: int
    dtype: str = "float32"
    memory_format: str = MEMORY_FORMATS[0]
    known: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()


@dataclass(frozen=True)
class Blueprint:
    """A module as its source built it, and its inputs: as data, or as example objects.

    Exactly one of `inputs` (the form of `ModelSpec.inputs`) and `example` (args, kwargs) is
    given; neither where the source knows no inputs. `of_batch` is the batch size that the source
    would have made the example for, had the request asked for none; None where it makes it for no
    batch size that is asked for. `in_dtype` says that the module has the
    request's dtype already: some buffers, such as rotary frequencies, keep their own.
    """

    module: nn.Module
    inputs: Mapping[str, Json] | None = None
    example: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    of_batch: int | None = None
    in_dtype: bool = False


class Source(ABC):
    """A family of models that are found by name.

    `no_weights` says why none of its models takes the name of published weights, empty where some
    do.
    """

    name: str
    no_weights = "its weights are random; leave them out"

    def names(self) -> Sequence[str]:
        """Return the valid names; empty where they cannot be listed."""
        return []

    def has(self, name: str) -> bool:
        return name in self.names()

    @abstractmethod
    def version(self, name: str) -> str:
        """Return the version of what the name stands for, without build suffixes."""

    @abstractmethod
    def build(self, request: ModelSpec) -> Blueprint:
        """Build the module on the current device, and say what inputs it takes."""


def sized_input(size: Sequence[int]) -> dict[str, Json]:
    """Return inputs of one normal tensor of the model's dtype: the batch, then the size."""
    return {"args": [{"shape": ["batch", *size]}]}


_FILES = dict.fromkeys(("builtin", "torchvision", "timm", "python"), "sources")
"""The modules of sources that do not bear their names."""


def names(source: str | None = None) -> list[str]:
    """Return the model names of a source, or of all (a source of import paths has none).

    Raises:
        UnknownNameError: there is no such source.
    """
    chosen = SOURCES if source is None else [source]
    return sorted({name for each in chosen for name in _source(each).names()})


def checked(spec: ModelSpec) -> ModelSpec:
    """Return a spec with its source found, all of it valid.

    Raises:
        InputError: a value is not among the allowed; the message names the nearest. Or a file
            names the model by an import path, whose code it would run.
    """
    spec.check()
    source = _source_name(spec)
    if spec.named_in is not None and is_import_path(spec.name):
        raise InputError(
            f"{spec.named_in}: model {spec.name!r} is an import path: to load it runs that "
            "module's code, which no file is trusted with; where you trust it, add --allow-code"
        )
    return replace(spec, source=source)


def load(request: ModelSpec, *, device: str) -> LoadedModel:
    """Load a model and its example inputs onto a device ("meta", "cpu", "cuda" or "cuda:1").

    The module is in eval mode (train mode for the training phase), of the request's dtype and
    memory format. On "meta" nothing is allocated: parameters move there as they are registered.

    Raises:
        InputError: the request is not valid, or the model cannot be built; the message says why.
    """
    from opdb.models.construction import load_from

    valid = checked(request)
    assert valid.source is not None
    return load_from(_source(valid.source), valid, device)


def load_to_look(request: ModelSpec) -> LoadedModel:
    """Load a model that is to be looked at: on meta, or on the CPU where it cannot be built there.

    Raises:
        InputError: the request is not valid, or the model cannot be built; the message says why.
    """
    from opdb.models.construction import ModelFailureError, check_fits

    try:
        return load(request, device="meta")
    except ModelFailureError as on_meta:
        check_fits(on_meta)
        return load(request, device="cpu")


def missing_library(error: ModuleNotFoundError, needed: str) -> InputError:
    """Return the error to raise in place of one of an import, where a package is not installed."""
    return InputError(
        f"{needed} the Python package {error.name!r} is needed, and it is not installed: "
        f"{install()}"
    )


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise UnknownNameError("source", name, SOURCES)
    try:
        found: Source = import_module(f"opdb.models.{_FILES.get(name, name)}").SOURCES[name]
    except ModuleNotFoundError as error:
        raise missing_library(error, f"for models of {name}") from error
    return found


def _source_name(request: ModelSpec) -> str:
    from opdb.models.catalogue import source_of, unknown_hint, unknown_model

    name = request.source or source_of(request.name)
    if name is None:
        raise unknown_model(request.name)
    source = _source(name)
    if not source.has(request.name):
        hint, what = unknown_hint(request.name), f"{name} model"
        raise UnknownNameError(what, request.name, source.names(), hint=hint)
    return name
