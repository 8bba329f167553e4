"""From a configuration to a call that can run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opdb.errors import UnknownNameError, UnsupportedError
from opdb.kinds import KINDS, get_kind
from opdb.kinds.fused import ENTRY
from opdb.kinds.fused import NAME as FUSED
from opdb.kinds.registry import parse_signature
from opdb.kinds.view import View
from opdb.operators.backward import build_backward
from opdb.operators.call import BuiltCall, compact, named_tensors, tensors_of
from opdb.operators.encoding import decode
from opdb.operators.entry import build_entry
from opdb.operators.functions import forms_by_kind
from opdb.operators.fused import build_fused
from opdb.operators.module_form import ModuleForm
from opdb.operators.modules import forms_of_kind
from opdb.operators.special import SPECIAL
from opdb.operators.update import build_update
from opdb.operators.values import adjusted_spec, generator_on, materialize, tame
from opdb.records import Configuration, Form, Json


class _Arguments:
    """The named arguments of a configuration, its tensors made."""

    def __init__(self, configuration: Configuration, device: str, seed: int) -> None:
        kind = KINDS[configuration.kind]
        self.view: View = kind.view(configuration)
        self.device, self.gradient = device, configuration.gradient
        self.generator = generator_on(device, seed)
        self.inputs: list[Tensor] = []
        self.weights: list[Tensor] = []
        self._made: list[Tensor] = []
        self.named: dict[str, Any] = {}
        names = kind.signature.parameters
        for name in names:
            if name in configuration.inputs:
                self.named[name] = decode(configuration.inputs[name], self._maker(name))
            elif name in configuration.parameters:
                self.named[name] = decode(configuration.parameters[name], self._no_tensor)
        unknown = {*configuration.inputs, *configuration.parameters} - {*names, "inplace"}
        if unknown:
            raise UnsupportedError(f"{kind.name}: unknown arguments {sorted(unknown)}")
        needed = {
            n for n, p in names.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        }
        if needed - self.named.keys():
            raise UnsupportedError(f"{kind.name}: missing {sorted(needed - self.named.keys())}")

    def _no_tensor(self, spec: Json) -> Tensor:
        raise UnsupportedError(f"a tensor among the parameters: {spec!r}")

    def _maker(self, name: str) -> Callable[[Json], Tensor]:
        def make(spec: Json) -> Tensor:
            if "same" in spec:
                tensor: Tensor = self._made[spec["same"]]
            else:
                adjusted = adjusted_spec(self.view, name, spec)
                tensor = materialize(adjusted, self.device, self.generator)
                tensor = tame(self.view, name, tensor)
                weight = spec.get("role") == "weight"
                floating = tensor.is_floating_point() or tensor.is_complex()
                if self.gradient and floating and not name.startswith("running_"):
                    tensor.requires_grad_(spec.get("gradient", True))
                (self.weights if weight else self.inputs).append(tensor)
            self._made.append(tensor)
            return tensor

        return make

    def full(self) -> dict[str, Any]:
        """Return the arguments with the kind's defaults filled in."""
        defaults = {
            n: p.default
            for n, p in self.view.signature.parameters.items()
            if p.default is not inspect.Parameter.empty
        }
        return defaults | self.named


def build(
    configuration: Configuration,
    *,
    form: Form | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> BuiltCall:
    """Build the call that a configuration describes, on seeded data made on the device.

    `form` None takes a module where the kind has one that fits, else the function. Only the
    reviewed table is ever called: a configuration from a stranger runs no code of its own.

    Raises:
        UnsupportedError: the kind is unknown, has no such form, or this torch lacks it.
    """
    try:
        get_kind(configuration.kind)
    except UnknownNameError as error:
        raise UnsupportedError(str(error)) from error
    if configuration.pass_name == "update":
        return build_update(configuration, device, seed)
    if configuration.kind == FUSED:
        return build_fused(configuration, device, seed)
    if configuration.kind == ENTRY:
        return build_entry(configuration, device)
    forward = build_forward(configuration.forward, form, device, seed)
    if configuration.pass_name == "backward":
        return build_backward(configuration, forward, device)
    return forward


def build_forward(
    configuration: Configuration, form: Form | None, device: str, seed: int
) -> BuiltCall:
    """Build a call of the forward pass.

    Raises:
        UnsupportedError: its kind has no such form, or this torch lacks it.
    """
    if configuration.pass_name != "forward":
        raise UnsupportedError(f"a {configuration.pass_name} pass of {configuration.kind}")
    try:
        made = _Arguments(configuration, device, seed)
        if form != "function":
            built = _build_module(configuration, made)
            if built is not None:
                return built
            if form == "module":
                raise UnsupportedError(f"no module computes this {configuration.kind}")
        return _build_function(configuration, made)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        message = f"cannot build {configuration.kind} from {configuration.json[:200]}: {error}"
        raise UnsupportedError(message) from error


def _mutated(configuration: Configuration, made: _Arguments) -> tuple[int, ...]:
    kind = KINDS[configuration.kind]
    if not configuration.parameters.get("inplace"):
        return ()
    changed = [t for n in kind.mutates for t in tensors_of(made.named.get(n))]
    return tuple(i for i, t in enumerate(made.inputs) if any(t is c for c in changed))


# functions


def _build_function(configuration: Configuration, made: _Arguments) -> BuiltCall:
    function, args, kwargs = _function_call(configuration, made)
    return BuiltCall(
        configuration,
        "function",
        made.inputs,
        made.weights,
        _mutated(configuration, made),
        None,
        function,
        args,
        kwargs,
        made.device,
    )


def _function_call(
    configuration: Configuration, made: _Arguments
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    kind, inplace = configuration.kind, bool(configuration.parameters.get("inplace"))
    if kind in SPECIAL:
        return SPECIAL[kind](**{**made.full(), "inplace": inplace, "device": made.device})
    forms = [f for f in forms_by_kind().get(kind, ()) if not f.swapped]
    in_signature = "inplace" in KINDS[kind].signature.parameters
    chosen = [f for f in forms if f.inplace == (inplace and not in_signature)]
    if not chosen or (inplace and not in_signature and not KINDS[kind].mutates):
        raise UnsupportedError(f"no function computes this {kind}")
    args, kwargs = _positional(chosen[0].signature, made)
    if KINDS[kind].creates:
        kwargs["device"] = made.device
    return chosen[0].function, args, kwargs


def _positional(
    signature: inspect.Signature, made: _Arguments
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Lay named arguments out as a call, positions first, leaving torch's own defaults alone."""
    full, args, kwargs = made.full(), [], {}
    gap = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            # torch takes no size at all only as an empty tuple
            items = full.get(name, ())
            args += list(items) if items or name in ("tensors", "operands") else [()]
            gap = True
            continue
        if name not in full:
            gap = gap or parameter.default is not inspect.Parameter.empty
            continue
        value = full[name]
        if name not in made.named and _same_default(value, parameter.default):
            gap = True
        elif gap or parameter.kind is parameter.KEYWORD_ONLY:
            kwargs[name] = value
        else:
            args.append(value)
    missing = made.named.keys() - signature.parameters.keys()
    if missing:
        raise UnsupportedError(f"no function takes {sorted(missing)}")
    return tuple(args), kwargs


def _same_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


# modules


def _build_module(configuration: Configuration, made: _Arguments) -> BuiltCall | None:
    full = made.full()
    for form in forms_of_kind(configuration.kind):
        if not form.matches(full) or not _weights_fit(configuration, form):
            continue
        if not form.takes(configuration.parameters):
            continue
        module = _construct(form, full, made)
        args, kwargs = _positional(parse_signature(form.call), _CallOnly(form, made))
        weights = [t for _, t in named_tensors(module)] if form.opaque else made.weights
        return BuiltCall(
            configuration,
            "module",
            made.inputs,
            weights,
            _mutated(configuration, made),
            module,
            module,
            args,
            kwargs,
            made.device,
        )
    return None


class _CallOnly(_Arguments):
    """The arguments that a module's forward takes; the rest live in the module."""

    def __init__(self, form: ModuleForm, made: _Arguments) -> None:
        names = parse_signature(form.call).parameters
        self.view = made.view
        self.named = {n: v for n, v in made.named.items() if n in names}


def _weights_fit(configuration: Configuration, form: ModuleForm) -> bool:
    """Return whether the tensors that the module would hold are weights, each its own."""
    call = parse_signature(form.call).parameters
    for name, value in configuration.inputs.items():
        is_weight = isinstance(value, dict) and value.get("role") == "weight"
        if name not in call and not is_weight:
            return False
    return True


def _construct(form: ModuleForm, full: dict[str, Any], made: _Arguments) -> nn.Module:
    arguments = form.constructor_arguments(full)
    with torch.device("meta"):
        module = form.module(**arguments)
    module.train(bool(full.get("training", False)))
    if form.opaque:
        _fill_opaque(module, full, made)
        return module
    for name in [n for n, _ in named_tensors(module)]:
        tensor = full.get(name)
        if tensor is None and name in module._parameters:
            raise UnsupportedError(f"{form.module.__name__} has a {name} that the call lacks")
        _put(module, name, tensor, made)
    return module


def _put(module: nn.Module, name: str, tensor: Tensor | None, made: _Arguments) -> None:
    if name in module._parameters and tensor is not None:
        needs = tensor.requires_grad if made.gradient else tensor.is_floating_point()
        kept = nn.Parameter(tensor.detach(), requires_grad=needs)
        made.weights[:] = [kept if w is tensor else w for w in made.weights]
        module._parameters[name] = kept
    elif tensor is not None:
        module._buffers[name] = tensor
    else:
        # the counter of batches that a norm keeps beside its statistics
        module._buffers[name] = torch.zeros((), dtype=torch.long, device=made.device)


def _fill_opaque(module: nn.Module, full: dict[str, Any], made: _Arguments) -> None:
    dtype = full.get("weight_dtype")
    if dtype is None:
        floating = [t.dtype for t in (*made.inputs, *made.weights) if t.is_floating_point()]
        dtype = floating[0] if floating else torch.float32
    module.to_empty(device=made.device).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            scale = max(parameter[0].numel(), 1) ** -0.5 if parameter.dim() > 1 else 0.1
            parameter.normal_(generator=made.generator).mul_(scale)
    compact(module)
