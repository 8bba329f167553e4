"""Build a module on the meta device, or for real, in the dtype and layout that are asked for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn

from opdb.errors import InputError, OpdbError, said_by
from opdb.models import Blueprint, LoadedModel, Source, sized_input
from opdb.models.inputs import (
    describe,
    in_layout,
    is_channels_last,
    is_index,
    make,
    mapped,
    of_batch,
    resolve,
    seeded,
    stored,
    tensors,
)
from opdb.models.known import LargeOnMeta
from opdb.records import Json
from opdb.spec import DTYPES, MEMORY_FORMATS, MIXED, ModelSpec, is_import_path

_patching = threading.RLock()
_TWIN = "_opdb_meta_twin"
MetaValues: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]
"""Tensors on meta, each with its values on the CPU."""

ANY_FAILURE = (Exception, SystemExit)
"""Errors of a model's own code: a script that parses its arguments ends the process."""


class ModelFailureError(InputError):
    """A model's own code failed while it was built or run; the cause is chained.

    `weights_bytes` is what its weights take; of one that could not be built, what the largest
    tensor that had been made on meta would.
    """

    def __init__(self, message: str, weights_bytes: int = 0) -> None:
        super().__init__(message)
        self.weights_bytes = weights_bytes


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Move each parameter to the meta device as a module registers it, in this thread.

    Unlike a meta device context, constructors that compute with small tensors still work.
    """
    thread = threading.get_ident()
    with _patching:
        # Only under the lock is this not another thread's patch, which would then stay for good.
        register = nn.Module.register_parameter

        def register_on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
            # register refuses what is not a parameter, or was computed
            plain = isinstance(param, nn.Parameter) and not param.is_meta and param.grad_fn is None
            mine = threading.get_ident() == thread
            register(self, name, _twin(param) if plain and mine else param)

        nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.register_parameter = register  # type: ignore[method-assign]


def _twin(param: Any) -> nn.Parameter:
    """Return the parameter's counterpart on meta: always the same one, so that ties stay ties."""
    twin: nn.Parameter | None = getattr(param, _TWIN, None)
    if twin is None:
        if isinstance(param, nn.UninitializedParameter):
            make: Any = nn.UninitializedParameter  # typed as the Parameter it replaces
            made: nn.Parameter = make(param.requires_grad, "meta", param.dtype)
        else:
            made = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        twin = made
        twin.__dict__.update(param.__dict__)
        setattr(param, _TWIN, twin)
    return twin


def load_from(source: Source, request: ModelSpec, device: str) -> LoadedModel:
    """Load a checked request from its source onto a device.

    Raises:
        InputError: the model cannot be built, or its inputs are not known.
    """
    if request.weights is not None and source.no_weights:
        raise InputError(f"{request.name!r}: weights {request.weights!r}: {source.no_weights}")
    blueprint = _build(source, request, device)
    if request.inputs is not None:
        blueprint = replace(blueprint, inputs=request.inputs, example=None, of_batch=None)
    if request.generation is not None:
        from opdb.models.transformers import as_generation

        blueprint = as_generation(blueprint, request)
    request, changed = _against_built(blueprint, request)
    assert request.dtype and request.memory_format and request.batch_size
    module, known = _prepared(blueprint, request, device, changed)
    if request.quantize is not None:
        from opdb.models.transformers import quantize

        quantize(request.name, module.get_submodule("decoder"))
    given, example = blueprint.inputs, blueprint.example
    if given is None and example is None and request.input_size is not None:
        given = sized_input(request.input_size)
    with seeded(device):
        if given is not None:
            with _named(request):
                data = resolve(given, request)
            args = tuple(make(value, device) for value in data["args"])
            kwargs = {name: make(value, device) for name, value in data["kwargs"].items()}
        elif example is not None:
            args, kwargs = _as_asked(blueprint, request, changed)
            with _named(request):
                data = {"args": [describe(v) for v in args], "kwargs": describe(kwargs)}
            examples = dict(enumerate(tensors((args, kwargs))))
            args, kwargs = mapped((args, kwargs), lambda tensor: tensor.to(device))
            known += _known(examples, enumerate(tensors((args, kwargs))))
        else:
            raise InputError(
                f"{request.name!r} came without example inputs; give input_size or inputs, "
                "or let the callable return (module, args)"
            )
    if request.generation is not None:
        data = {**data, "generation": request.generation}
    if changed and is_import_path(request.name):
        data = {**data, "built": changed}
    return LoadedModel(
        name=request.name,
        source=source.name,
        source_version=source.version(request.name),
        module=module,
        args=args,
        kwargs=kwargs,
        inputs=data,
        batch_size=request.batch_size,
        dtype=request.dtype,
        memory_format=request.memory_format,
        known=known,
    )


def _against_built(blueprint: Blueprint, request: ModelSpec) -> tuple[ModelSpec, dict[str, Json]]:
    """Return a request with what it leaves open, as it was built, and what it changes of that.

    The dtype is that of parameters and example inputs, else of buffers: see `LoadedModel`. The
    batch size is the first size of the first example input that has one.

    Raises:
        InputError: the dtype does not suit what else is asked for.
    """
    given = tensors(blueprint.example)
    held = [*blueprint.module.parameters(), *given]
    floating = [t for t in held if t.is_floating_point()] or [
        t for t in blueprint.module.buffers() if t.is_floating_point()
    ]
    dtypes = dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in floating)
    last = any(is_channels_last(t) for t in held if not nn.parameter.is_lazy(t))
    batches = [blueprint.of_batch, *(t.size(0) for t in given if t.dim())]
    stated = (request.batch_size if blueprint.example is None else None) or 1
    built: dict[str, Any] = {
        "dtype": MIXED.join(dtypes) or DTYPES[0],
        "memory_format": MEMORY_FORMATS[last],
        "batch_size": next(filter(None, batches), stated),
    }
    left = {name: value for name, value in built.items() if getattr(request, name) is None}
    asked = replace(request, **left)
    asked.check_dtype()
    return asked, {name: each for name, each in built.items() if getattr(asked, name) != each}


def _known(
    before: Mapping[Any, torch.Tensor], after: Iterable[tuple[object, torch.Tensor]]
) -> MetaValues:
    """Return the tensors of indices that have gone to meta, with what they were before."""
    return [
        (tensor, held)
        for name, tensor in after
        if tensor.is_meta
        and type(held := before.get(name)) is torch.Tensor
        and held.device.type == "cpu"
        and held.layout == torch.strided
        and is_index(held.dtype)
        and (tensor.shape, tensor.dtype) == (held.shape, held.dtype)
    ]


@contextmanager
def _named(request: ModelSpec) -> Iterator[None]:
    """Name the model in what is wrong with its inputs: there may be several models."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{request.name!r}: {error}") from error


def _build(source: Source, request: ModelSpec, device: str) -> Blueprint:
    if device != "meta":
        return _built(source, request, device)
    large = LargeOnMeta()
    try:
        with parameters_on_meta(), large:
            return _built(source, request, device)
    except ModelFailureError as error:
        error.weights_bytes = large.largest_bytes
        raise


def _built(source: Source, request: ModelSpec, device: str) -> Blueprint:
    """Build a model.

    Raises:
        ModelFailureError: its constructor fails.
        torch.OutOfMemoryError: the GPU has no room for it.
    """
    try:
        found = _built_on(device, source, request) if device.startswith("cuda") else None
        if found is None:
            with seeded(device):
                found = source.build(request)
        list(found.module.parameters())  # torch looks modules up by hash; one without fails here
        return found
    except (OpdbError, torch.OutOfMemoryError):
        raise
    except ANY_FAILURE as error:  # a model's constructor is anyone's code and may raise anything
        raise ModelFailureError(
            f"{request.name!r} ({source.name}) cannot be built: {one_line(error)}"
        ) from error


def _built_on(device: str, source: Source, request: ModelSpec) -> Blueprint | None:
    """Build a model on a GPU, where drawing billions of weights takes no time and no host memory.

    None where its constructor fails for that, as one that computes with NumPy does; it is built on
    the CPU then and moved.
    """
    try:
        with seeded(device), torch.device(device):
            return source.build(request)
    except (OpdbError, torch.OutOfMemoryError):
        raise
    except ANY_FAILURE:  # anyone's code; what fails on the CPU too is raised there
        return None


def bytes_of(held: Iterable[torch.Tensor]) -> int:
    """Return the bytes of parameters and buffers; those that have no size yet count none."""
    return sum(t.nbytes for each in held if not nn.parameter.is_lazy(each) for t in stored(each))


def check_fits(failure: ModelFailureError) -> None:
    """Raise the failure on meta where the weights leave no memory here for a pass with values."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if failure.weights_bytes > memory_bytes / 2:
        raise ModelFailureError(
            f"{failure}; its weights ({failure.weights_bytes / 1e9:.0f} GB) are too large for a "
            f"pass on the CPU here ({memory_bytes / 1e9:.0f} GB of memory)"
        ) from failure


def one_line(error: BaseException) -> str:
    """Return an exception's type and what it says."""
    said = said_by(error)
    return type(error).__name__ + (f": {said}" if said else "")


def _prepared(
    blueprint: Blueprint, request: ModelSpec, device: str, changed: Mapping[str, Json]
) -> tuple[nn.Module, MetaValues]:
    """Return the module as it is asked for, and what is known of its buffers on meta."""
    try:
        built = dict(blueprint.module.named_buffers())
        module = _as_written(blueprint.module).to(device=device)
        if "dtype" in changed and not blueprint.in_dtype:
            # Module.to(dtype) would take complex ones too, and their imaginary part off.
            dtype = getattr(torch, str(request.dtype))
            module = module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)
        if "memory_format" in changed:
            # Module.to(memory_format=...) refuses models that have both 4-d and 5-d parameters.
            for param in module.parameters():
                if not isinstance(param, nn.UninitializedParameter):
                    param.data = in_layout(param.data, request.memory_format)
        for part in module.modules():
            # What an exported module calls depends on no mode; its own method only refuses.
            if str(getattr(vars(part).get("train"), "__module__", None)).startswith("torch.export"):
                del part.train
        module = module.train(request.phase == "training")
        return module, _known(built, module.named_buffers())
    except torch.OutOfMemoryError:
        raise
    except ANY_FAILURE as error:  # a module's own `train` or `to` may refuse
        raise ModelFailureError(
            f"{request.name!r} cannot be made {request.dtype} {request.memory_format} for "
            f"{request.phase}: {one_line(error)}"
        ) from error


def _as_written(module: nn.Module) -> nn.Module:
    """Return a module without torch.compile around it or its parts: the mode says what compiles."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is None:  # then nothing was compiled
        return module
    compiled: Any = eval_frame.OptimizedModule
    while isinstance(module, compiled):
        module = module._orig_mod
    for part in list(module.modules()):
        part._compiled_call_impl = None
        for name, child in part.named_children():
            while isinstance(child, compiled):
                child = child._orig_mod
                setattr(part, name, child)
    return module


def _as_asked(blueprint: Blueprint, request: ModelSpec, changed: Mapping[str, Json]) -> Any:
    """Return example inputs in the dtype, memory format and batch size that are asked for.

    The batch is that of the inputs which share its size as their first one.

    Raises:
        InputError: another batch size is asked for, and no example input has a batch.
    """
    batch = None if blueprint.of_batch else changed.get("batch_size")
    batched = [t for t in tensors(blueprint.example) if t.dim() and t.size(0) == batch]
    if batch is not None and not (batch and batched):
        raise InputError(
            f"{request.name!r} returns example inputs without a batch, not of batch "
            f"{request.batch_size}; let the callable take batch_size, or give inputs"
        )

    def asked(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and tensor.size(0) == batch:
            tensor = of_batch(tensor, request.batch_size or 1)
        if tensor.is_floating_point() and "dtype" in changed:
            tensor = tensor.to(getattr(torch, str(request.dtype)))
        if tensor.is_floating_point() and "memory_format" in changed:
            tensor = in_layout(tensor, request.memory_format)
        return tensor

    return mapped(blueprint.example, asked)
