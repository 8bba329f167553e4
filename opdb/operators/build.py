"""From a configuration to a call that can run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from opdb.errors import UnknownNameError, UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.fused import ENTRY
from opdb.kinds.fused import NAME as FUSED
from opdb.kinds.registry import parse_signature
from opdb.kinds.view import View
from opdb.models.inputs import materialize, tensors
from opdb.operators.call import (
    BuiltCall,
    build_backward,
    build_update,
    compact,
    named_tensors,
)
from opdb.operators.describe import FORMS, PACKED, ModuleForm
from opdb.operators.encoding import (
    adjusted_spec,
    decode,
    generator_on,
    no_tensor,
    tame,
)
from opdb.operators.functions import SEQUENCES, function_forms
from opdb.records import Configuration, Form, Json

Prepared: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _single(index: tuple[Any, ...]) -> Any:
    # x[0] rather than x[0,]: as it is mostly written
    alone = len(index) == 1 and not isinstance(index[0], tuple)
    return index[0] if alone else index


def _to(input: Tensor, dtype: Any, copy: bool, memory_format: Any, **rest: Any) -> Prepared:
    more: dict[str, Any] = {"copy": True} if copy else {}
    if memory_format is not None:
        more["memory_format"] = memory_format
    return Tensor.to, (input, rest["device"] if dtype is None else dtype), more


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str, **_: Any) -> Prepared:
    if len(shape) > 4 or torch.Size(shape).numel() > 1_000_000:
        raise UnsupportedError(f"a constant of shape {shape} is too large to spell")
    data: Any = 1
    for size in reversed(shape):
        data = [data] * size
    return torch.tensor, (data,), {"dtype": dtype, "device": device}


def _reduction(
    name: str, input: Tensor, dim: Any, keepdim: bool, dtype: Any = None, **_: Any
) -> Prepared:
    more = {} if dtype is None else {"dtype": dtype}
    args = (input,) if dim is None else (input, dim, keepdim) if keepdim else (input, dim)
    return getattr(torch, name), args, more


def _sort(
    function: Any, input: Tensor, dim: int, descending: bool, stable: bool, **_: Any
) -> Prepared:
    if stable:
        return function, (input,), {"dim": dim, "descending": descending, "stable": True}
    return function, (input, dim, descending), {}


def _sequences(kind: str, **given: Any) -> Prepared:
    input, sizes, *rest = (given[name] for name in SEQUENCES[kind])
    return getattr(torch, f"_{kind}"), (input, torch.tensor(sizes, device="cpu"), *rest), {}


def _roi_align(input: Tensor, boxes: Tensor, **rest: Any) -> Prepared:
    height, width = rest["output_size"]
    more = (rest["spatial_scale"], height, width, rest["sampling_ratio"], rest["aligned"])
    return _vision("roi_align"), (input, boxes, *more), {}


def _deform(input: Tensor, offset: Tensor, weight: Tensor, **rest: Any) -> Prepared:
    mask, bias = rest["mask"], rest["bias"]
    if mask is None:
        mask = torch.zeros((input.shape[0], 1), device=input.device, dtype=input.dtype)
    if bias is None:
        bias = torch.zeros(weight.shape[0], device=input.device, dtype=input.dtype)
    height, width = weight.shape[-2:]
    groups = input.shape[1] // weight.shape[1]
    offset_groups = offset.shape[1] // (2 * height * width)
    windows = (*rest["stride"], *rest["padding"], *rest["dilation"])
    counts = (groups, offset_groups, rest["mask"] is not None)
    return _vision("deform_conv2d"), (input, weight, offset, mask, bias, *windows, *counts), {}


def _vision(name: str) -> Callable[..., Any]:
    # torchvision's operators exist once it is imported, which takes a second
    import torchvision  # noqa: F401

    return getattr(torch.ops.torchvision, name)  # type: ignore[no-any-return]


# Kinds whose call is spelled otherwise than one torch function with the kind's arguments.
#
# Each lays the call out beforehand, so that nothing but torch's own function runs when it is timed.
SPECIAL: Mapping[str, Callable[..., Prepared]] = {
    "getitem": lambda input, index, **_: (Tensor.__getitem__, (input, _single(index)), {}),
    "setitem": lambda input, index, value, **_: (
        (Tensor.__setitem__, (input, _single(index), value), {})
    ),
    "to": _to,
    "tensor": _tensor,
    **{kind: partial(_sequences, kind) for kind in SEQUENCES},
    **{
        name: partial(_reduction, name)
        for name in ("max", "min", "median", "mode", "any", "all", "sum", "mean", "prod")
    },
    **{name: partial(_sort, getattr(torch, name)) for name in ("sort", "argsort")},
    "nms": lambda boxes, scores, iou_threshold, **_: (
        (_vision("nms"), (boxes, scores, iou_threshold), {})
    ),
    "roi_align": _roi_align,
    "deform_conv2d": _deform,
}


class _Arguments:
    def __init__(self, configuration: Configuration, device: str, seed: int) -> None:
        kind = KINDS[configuration.kind]
        self.configuration, self.device = configuration, device
        self.view: View = kind.view(configuration)
        self.generator = generator_on(device, seed)
        self.inputs: list[Tensor] = []
        self.weights: list[Tensor] = []
        self._made: list[Tensor] = []
        self.named: dict[str, Any] = {}
        names = kind.signature.parameters
        for name in names:
            if name in configuration.inputs:
                self.named[name] = decode(configuration.inputs[name], partial(self._tensor, name))
            elif name in configuration.parameters:
                self.named[name] = decode(configuration.parameters[name], no_tensor)
        unknown = {*configuration.inputs, *configuration.parameters} - {*names, "inplace"}
        if unknown:
            raise UnsupportedError(f"{kind.name}: unknown arguments {sorted(unknown)}")
        needed = {
            n for n, p in names.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        }
        if needed - self.named.keys():
            raise UnsupportedError(f"{kind.name}: missing {sorted(needed - self.named.keys())}")
        defaults = {n: p.default for n, p in names.items() if p.default is not p.empty}
        self.full = defaults | self.named

    def _tensor(self, name: str, spec: Json) -> Tensor:
        if "same" in spec:
            tensor: Tensor = self._made[spec["same"]]
        else:
            tensor = materialize(adjusted_spec(self.view, name, spec), self.device, self.generator)
            tensor = tame(self.view, name, tensor)
            floating = tensor.is_floating_point() or tensor.is_complex()
            if self.configuration.gradient and floating and not name.startswith("running_"):
                tensor.requires_grad_(spec.get("gradient", True))
            (self.weights if spec.get("role") == "weight" else self.inputs).append(tensor)
        self._made.append(tensor)
        return tensor

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, **more: Any) -> BuiltCall:
        mutates = KINDS[self.configuration.kind].mutates if self.view.inplace else ()
        changed = [t for n in mutates for t in tensors(self.named.get(n))]
        return BuiltCall(
            self.configuration,
            function,
            args,
            kwargs,
            self.device,
            inputs=self.inputs,
            mutated=tuple(
                i for i, t in enumerate(self.inputs) if any(t is each for each in changed)
            ),
            **{"weights": self.weights, **more},
        )

    def positional(
        self, signature: inspect.Signature, named: Collection[str]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Lay arguments out as a call, positions first, leaving torch's own defaults alone."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        gap = False
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                # torch takes no size at all only as an empty tuple
                items = self.full.get(name, ())
                args += list(items) if items or name in ("tensors", "operands") else [()]
                gap = True
                continue
            if name not in self.full:
                gap = gap or parameter.default is not parameter.empty
                continue
            value, default = self.full[name], parameter.default
            if name not in named and type(value) is type(default) and bool(value == default):
                gap = True
            elif gap or parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        missing = set(named) - signature.parameters.keys()
        if missing:
            raise UnsupportedError(f"no function takes {sorted(missing)}")
        return tuple(args), kwargs


def build(
    configuration: Configuration, *, form: Form | None = None, device: str = "cpu", seed: int = 0
) -> BuiltCall:
    """Build the call that a configuration describes, on seeded data made on the device.

    `form` None takes a module where the kind has one that fits, else the function. Only the
    reviewed table is ever called: a configuration from a stranger runs no code of its own.
    """
    if configuration.kind not in KINDS:
        raise UnsupportedError(str(UnknownNameError("kind", configuration.kind, KINDS)))
    if configuration.pass_name == "update":
        return build_update(configuration, device, seed)
    if configuration.kind in (FUSED, ENTRY):
        from opdb.compiled.fused import build_entry, build_fused

        if configuration.kind == ENTRY:
            return build_entry(configuration, device)
        return build_fused(configuration, device, seed)
    forward = build_forward(configuration.forward, form, device, seed)
    if configuration.pass_name == "backward":
        return build_backward(configuration, forward, device)
    return forward


def build_forward(
    configuration: Configuration, form: Form | None, device: str, seed: int
) -> BuiltCall:
    if configuration.pass_name != "forward":
        raise UnsupportedError(f"a {configuration.pass_name} pass of {configuration.kind}")
    try:
        made = _Arguments(configuration, device, seed)
        built = None if form == "function" else _build_module(configuration, made)
        if built is None and form == "module":
            raise UnsupportedError(f"no module computes this {configuration.kind}")
        return built or _build_function(configuration, made)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        message = f"cannot build {configuration.kind} from {configuration.json[:200]}: {error}"
        raise UnsupportedError(message) from error


def _build_function(configuration: Configuration, made: _Arguments) -> BuiltCall:
    kind, inplace = KINDS[configuration.kind], made.view.inplace
    if kind.name in SPECIAL:
        given = {**made.full, "inplace": inplace, "device": made.device}
        return made.call(*SPECIAL[kind.name](**given))
    as_form = inplace and "inplace" not in kind.signature.parameters
    forms = function_forms()[kind.name].values()
    chosen = [f for f in forms if not f.swapped and f.inplace == as_form]
    if not chosen or (as_form and not kind.mutates):
        raise UnsupportedError(f"no function computes this {kind.name}")
    args, kwargs = made.positional(chosen[0].signature, made.named)
    if kind.creates:
        kwargs["device"] = made.device
    return made.call(chosen[0].function, args, kwargs)


def _build_module(configuration: Configuration, made: _Arguments) -> BuiltCall | None:
    for form in (each for each in FORMS if each.kind == configuration.kind):
        signature = parse_signature(form.call)
        taken = signature.parameters.keys()
        # the tensors that the module would hold are weights, each its own
        held = [value for name, value in configuration.inputs.items() if name not in taken]
        fits = all(isinstance(value, dict) and value.get("role") == "weight" for value in held)
        if not (form.matches(made.full) and fits and form.takes(configuration.parameters)):
            continue
        module = _construct(form, made)
        args, kwargs = made.positional(signature, made.named.keys() & taken)
        sizes, *order = (kwargs.pop(name, None) for name in PACKED)
        if sizes is not None:
            args = (PackedSequence(args[0], torch.tensor(sizes, device="cpu"), *order), *args[1:])
        weights = [t for _, t in named_tensors(module)] if form.opaque else made.weights
        return made.call(module, args, kwargs, module=module, weights=weights)
    return None


def _construct(form: ModuleForm, made: _Arguments) -> nn.Module:
    with torch.device("meta"):
        module = form.module(**form.constructor_arguments(made.full))
    module.train(bool(made.full.get("training", False)))
    if form.opaque:
        _fill_opaque(module, made)
        return module
    for name in [n for n, _ in named_tensors(module)]:
        tensor = made.full.get(name)
        if name in module._buffers:
            # the call lacks the counter of batches that a norm keeps beside its statistics
            counter = torch.zeros((), dtype=torch.long, device=made.device)
            module._buffers[name] = counter if tensor is None else tensor
            continue
        if tensor is None:
            raise UnsupportedError(f"{form.module.__name__} has a {name} that the call lacks")
        gradient = made.configuration.gradient
        needs = tensor.requires_grad if gradient else tensor.is_floating_point()
        kept = nn.Parameter(tensor.detach(), requires_grad=needs)
        made.weights[:] = [kept if w is tensor else w for w in made.weights]
        module._parameters[name] = kept
    return module


def _fill_opaque(module: nn.Module, made: _Arguments) -> None:
    dtype = made.full.get("weight_dtype")
    if dtype is None:
        floating = [t.dtype for t in (*made.inputs, *made.weights) if t.is_floating_point()]
        dtype = floating[0] if floating else torch.float32
    module.to_empty(device=made.device).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            scale = max(parameter[0].numel(), 1) ** -0.5 if parameter.dim() > 1 else 0.1
            parameter.normal_(generator=made.generator).mul_(scale)
    compact(module)
