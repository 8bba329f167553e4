"""Build a module on the meta device, or for real, in the dtype and layout that are asked for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

import opdb
from opdb.errors import InputError, OpdbError, said_by
from opdb.models import Blueprint, LoadedModel
from opdb.models.catalogue import version_of
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
from opdb.models.meta import LargeOnMeta
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
        twin = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        twin.__dict__.update(param.__dict__)
        setattr(param, _TWIN, twin)
    return twin


def load_from(request: ModelSpec, device: str) -> LoadedModel:
    """Load a checked request from its source onto a device."""
    source = str(request.source)
    if request.weights is not None and source != "torchvision":
        raise InputError(
            f"{request.name!r}: weights {request.weights!r}: only models of torchvision take any; "
            "leave them out"
        )
    blueprint = _build(request, device)
    if request.inputs is not None:
        blueprint = replace(blueprint, inputs=request.inputs, example=None)
    if request.generation is not None:
        from opdb.models.transformers import as_generation

        blueprint = as_generation(blueprint, request)
    request, built = _against_built(blueprint, request)
    assert request.dtype and request.memory_format and request.batch_size
    module, known = _prepared(blueprint, request, device, built)
    if request.quantize is not None:
        from opdb.models.transformers import quantize

        quantize(request.name, module.get_submodule("decoder"))
    try:
        with seeded(device):
            args, kwargs, data = _inputs(blueprint, request, device, known, built)
    except InputError as error:
        raise InputError(f"{request.name!r}: {error}") from error
    if request.generation is not None:
        data = {**data, "generation": request.generation}
    if built and is_import_path(request.name):
        data = {**data, "built": built}
    return LoadedModel(
        name=request.name,
        source=source,
        source_version=_version(source, request.name),
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
    """
    given = tensors(blueprint.example)
    held = [*blueprint.module.parameters(), *given]
    floating = [t for t in held if t.is_floating_point()] or [
        t for t in blueprint.module.buffers() if t.is_floating_point()
    ]
    dtypes = dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in floating)
    batch_size = request.batch_size or 1
    if blueprint.example is not None:
        batch_size = blueprint.batch_size or next((t.size(0) for t in given if t.dim()), 1)
    built: dict[str, Any] = {
        "dtype": MIXED.join(dtypes) or DTYPES[0],
        "memory_format": MEMORY_FORMATS[any(map(is_channels_last, held))],
        "batch_size": batch_size,
    }
    left = {name: value for name, value in built.items() if getattr(request, name) is None}
    asked = replace(request, **left)
    asked.check_dtype()
    return asked, {name: value for name, value in built.items() if getattr(asked, name) != value}


def _known(
    before: Mapping[Any, torch.Tensor], after: Iterable[tuple[object, torch.Tensor]]
) -> MetaValues:
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


def _inputs(
    blueprint: Blueprint,
    request: ModelSpec,
    device: str,
    known: MetaValues,
    built: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Json]]:
    if blueprint.inputs is not None:
        data = resolve(blueprint.inputs, request)
        args = tuple(make(value, device) for value in data["args"])
        return args, {name: make(value, device) for name, value in data["kwargs"].items()}, data
    if blueprint.example is None:
        raise InputError(
            "no example inputs; give input_size or inputs, or let the callable return (module, "
            "args)"
        )

    # The batch is that of the inputs which share its size as their first one.
    batched = [t for t in tensors(blueprint.example) if t.shape[:1] == (built.get("batch_size"),)]
    if "batch_size" in built and not (built["batch_size"] and batched):
        raise InputError(
            f"example inputs without a batch, not of batch {request.batch_size}; let the callable "
            "take batch_size, or give inputs"
        )

    def asked(tensor: torch.Tensor) -> torch.Tensor:
        if any(tensor is each for each in batched):
            tensor = of_batch(tensor, request.batch_size or 1)
        if not tensor.is_floating_point():
            return tensor
        if "dtype" in built:
            tensor = tensor.to(getattr(torch, str(request.dtype)))
        return in_layout(tensor, request.memory_format) if "memory_format" in built else tensor

    args, kwargs = mapped(blueprint.example, asked)
    data = {"args": [describe(v) for v in args], "kwargs": describe(kwargs)}
    examples = dict(enumerate(tensors((args, kwargs))))
    args, kwargs = mapped((args, kwargs), lambda tensor: tensor.to(device))
    known += _known(examples, enumerate(tensors((args, kwargs))))
    return args, kwargs, data


def _version(source: str, name: str) -> str:
    """Return the version of what builds a model, without build suffixes; empty: not known."""
    if source == "python":
        package = sys.modules.get(name.partition(":")[0].partition(".")[0])
        return str(getattr(package, "__version__", ""))
    return opdb.__version__ if source == "builtin" else version_of(source) or ""


def _build(request: ModelSpec, device: str) -> Blueprint:
    """Build a model on meta, or on the device: a GPU draws billions of weights in no time.

    Raises:
        ModelFailureError: its constructor fails.
        InputError: it is not known how large all of its parameters are.
        torch.OutOfMemoryError: the GPU has no room for it.
    """
    together = request.source in ("builtin", "torchvision", "timm", "python")
    file = "sources" if together else request.source
    build = import_module(f"opdb.models.{file}").SOURCES[request.source]
    large = LargeOnMeta()
    try:
        with seeded(device), ExitStack() as stack:
            if device == "meta":
                stack.enter_context(parameters_on_meta())
                stack.enter_context(large)
            elif request.source != "python":  # whose own may compute with NumPy
                stack.enter_context(torch.device(device))
            found: Blueprint = build(request)
        parameters = list(found.module.parameters())  # fails for modules that have no hash
    except (OpdbError, torch.OutOfMemoryError):
        raise
    except ANY_FAILURE as error:  # a model's constructor is anyone's code and may raise anything
        said = f"{request.name!r} ({request.source}) cannot be built: {one_line(error)}"
        raise ModelFailureError(said, large.largest_bytes) from error
    if any(map(nn.parameter.is_lazy, parameters)):
        raise InputError(
            f"{request.name!r} has lazy modules, whose sizes their first call decides: call it "
            "once before it is returned"
        )
    return found


def bytes_of(held: Iterable[torch.Tensor]) -> int:
    return sum(t.nbytes for each in held for t in stored(each))


def check_fits(failure: ModelFailureError) -> None:
    """Raise the failure on meta where the weights leave no memory here for a pass with values."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if failure.weights_bytes > memory_bytes / 2:
        raise ModelFailureError(
            f"{failure}; its weights ({failure.weights_bytes / 1e9:.0f} GB) are too large for a "
            f"pass on the CPU here ({memory_bytes / 1e9:.0f} GB of memory)"
        ) from failure


def one_line(error: BaseException) -> str:
    said = said_by(error)
    return type(error).__name__ + (f": {said}" if said else "")


def _prepared(
    blueprint: Blueprint, request: ModelSpec, device: str, built: Mapping[str, Any]
) -> tuple[nn.Module, MetaValues]:
    try:
        buffers = dict(blueprint.module.named_buffers())
        module = _as_written(blueprint.module).to(device=device)
        if "dtype" in built and not blueprint.in_dtype:
            # Module.to(dtype) would take complex ones too, and their imaginary part off.
            dtype = getattr(torch, str(request.dtype))
            module = module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)
        if "memory_format" in built:
            # Module.to(memory_format=...) refuses models that have both 4-d and 5-d parameters.
            for param in module.parameters():
                param.data = in_layout(param.data, request.memory_format)
        for part in module.modules():
            # What an exported module calls depends on no mode; its own method only refuses.
            if str(getattr(vars(part).get("train"), "__module__", None)).startswith("torch.export"):
                del part.train
        module = module.train(request.phase == "training")
        return module, _known(buffers, module.named_buffers())
    except torch.OutOfMemoryError:
        raise
    except ANY_FAILURE as error:  # a module's own `train` or `to` may refuse
        raise ModelFailureError(
            f"{request.name!r} cannot be made {request.dtype} {request.memory_format} for "
            f"{request.phase}: {one_line(error)}"
        ) from error


def _as_written(module: Any) -> nn.Module:
    """Return a module without torch.compile around it or its parts: the mode says what compiles."""
    written: nn.Module = getattr(module, "_orig_mod", module)
    for part in written.modules():
        part._compiled_call_impl = None
        for name, child in part.named_children():
            setattr(part, name, getattr(child, "_orig_mod", child))
    return written


# What a pass of a built model needs besides: statistics of batch norms, and a loss to train on.


def calibrate_batch_norms(loaded: LoadedModel) -> None:
    """Set batch-norm statistics by one training-mode pass, so that activations stay finite.

    With random weights the default statistics (mean 0, variance 1) let activations grow layer by
    layer until they overflow; what follows would then be measured on infinities.
    """
    norms = [m for m in loaded.module.modules() if isinstance(m, _BatchNorm)]
    before = [(m, m.training, m.momentum) for m in norms if m.track_running_stats]
    if not before:
        return
    try:
        for m, _, _ in before:
            m.train()
            m.momentum = 1.0  # takes over the statistics of this pass
        with torch.no_grad():
            loaded.module(*map(_twofold, loaded.args), **loaded.kwargs)
    finally:
        for m, training, momentum in before:
            m.train(training)
            m.momentum = momentum


def _twofold(given: Any) -> Any:
    """Repeat a batch of one, a tensor or a list: a single value has no statistics."""
    first = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(first, Tensor) or not first.is_floating_point() or first.dim() < 2:
        return given
    if first is not given:
        return [first, torch.randn_like(first)] if len(first) > 1 else given
    return torch.cat([given, torch.randn_like(given)]) if len(given) == 1 else given


@dataclass(frozen=True)
class Loss:
    """The loss that a training step minimises, as a function of the model's outputs.

    A model's own loss is any scalar that it returns in train mode. Any other model is a
    classifier: the classes are dimension 1 of its first output, the last one of a sequence's
    (three dimensions). Outputs of the same shape as the first, which are auxiliary classifiers,
    have the same `targets`.
    """

    targets: Tensor | None
    classes: int

    @classmethod
    def of(cls, outputs: Any) -> Loss:
        """Return the loss that fits a model's outputs; targets are drawn at random."""
        if _own(outputs):
            return cls(None, 0)
        logits = _logits(outputs)
        if not logits:
            raise InputError(
                "cannot be trained: it returns neither a loss nor class scores that depend on its "
                "parameters (give a callable whose module returns its loss)"
            )
        shape = logits[0].shape
        classes = int(shape[-1] if len(shape) == 3 else shape[1])
        wanted = (shape[0] * shape[1],) if len(shape) == 3 else (shape[0], *shape[2:])
        targets = torch.randint(0, classes, wanted, device=logits[0].device)
        return cls(targets, classes)

    def __call__(self, outputs: Any) -> Tensor:
        if self.targets is None:
            own, *others = _own(outputs)
            return sum(others, own)
        terms = []
        for logits in _logits(outputs):
            flat = logits.flatten(0, 1) if logits.dim() == 3 else logits
            terms.append(functional.cross_entropy(flat, self.targets))
        return sum(terms[1:], terms[0])


def _own(outputs: Any) -> list[Tensor]:
    """Return the losses that a model computed itself: `loss`, or the scalars it returns."""
    if isinstance(outputs, Mapping) and isinstance(outputs.get("loss"), Tensor):
        return [outputs["loss"]]
    return [t for t in tensors(outputs) if t.dim() == 0 and t.requires_grad]


def _logits(outputs: Any) -> list[Tensor]:
    """Return the outputs to be trained: the first that can be, and others of its shape."""
    found = [t for t in tensors(outputs) if t.dim() > 1 and t.requires_grad]
    return [t for t in found if t.shape == found[0].shape]
