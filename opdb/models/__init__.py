"""From a name to a model with example inputs.

Importing this package imports no torch: what it names is data. `load` imports what builds a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
    that hold indices or masks (see `opdb.models.meta.KnownValues`).
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
    given; neither where the source knows no inputs. `batch_size` is the one that the source made
    the example for, where it takes one. `in_dtype` says that the module has the request's dtype
    already: some buffers, such as rotary frequencies, keep their own.
    """

    module: nn.Module
    inputs: Mapping[str, Json] | None = None
    example: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    batch_size: int | None = None
    in_dtype: bool = False


def sized_input(size: Sequence[int]) -> dict[str, Json]:
    """Return inputs of one normal tensor of the model's dtype: the batch, then the size."""
    return {"args": [{"shape": ["batch", *size]}]}


def names(source: str | None = None) -> list[str]:
    """Return the model names of a source, or of all (a source of import paths has none).

    Raises:
        UnknownNameError: there is no such source.
    """
    from opdb.models.catalogue import catalogue, of_timm

    if source is not None and source not in SOURCES:
        raise UnknownNameError("source", source, SOURCES)
    listed = (*catalogue(), *(of_timm() if source in (None, "timm") else ()))
    return sorted({each.name for each in listed if source in (None, each.source)})


def checked(spec: ModelSpec) -> ModelSpec:
    """Return a spec with its source found, all of it valid."""
    from opdb.models.catalogue import sources_of, unknown_model

    spec.check()
    found = sources_of(spec.name)
    if spec.source not in (None, *found) or not found:
        raise unknown_model(spec.name, source=spec.source)
    if spec.named_in is not None and is_import_path(spec.name):
        raise InputError(
            f"{spec.named_in}: model {spec.name!r} is an import path: to load it runs that "
            "module's code, which no file is trusted with; where you trust it, add --allow-code"
        )
    return replace(spec, source=spec.source or found[0])


def load(request: ModelSpec, *, device: str) -> LoadedModel:
    """Load a model and its example inputs onto a device ("meta", "cpu", "cuda" or "cuda:1").

    The module is in eval mode (train mode for the training phase), of the request's dtype and
    memory format. On "meta" nothing is allocated: parameters move there as they are registered.
    """
    from opdb.models.construction import load_from

    return load_from(checked(request), device)


def load_to_look(request: ModelSpec) -> LoadedModel:
    """Load a model to look at: on meta, or on the CPU where it cannot be built there."""
    from opdb.models.construction import ModelFailureError, check_fits

    try:
        return load(request, device="meta")
    except ModelFailureError as on_meta:
        check_fits(on_meta)
        return load(request, device="cpu")
