"""From a call that is about to run to its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.view import walk
from opdb.operators.encoding import Encoder, TensorNotes, encode_constant
from opdb.operators.functions import bind_function, metadata_functions
from opdb.operators.modules import is_plain, module_form
from opdb.records import Configuration, Json, canonical_json

_SIZES = ("size", "shape", "sizes", "output_size")
_ATOMS = {type(None), bool, int, float, str}


def is_operator_module(module: nn.Module) -> bool:
    """Return whether a module's call is one operator: a torch.nn class that opdb can rebuild.

    A subclass counts where it adds nothing that computes; a module with hooks, a parametrisation
    or a forward of its own does not.
    """
    return module_form(module) is not None and is_plain(module)


def is_metadata(function: Callable[..., Any]) -> bool:
    """Return whether a torch function only asks what a tensor is, and so is not an operator."""
    return function in metadata_functions()


def describe_module(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    notes: TensorNotes,
) -> Configuration:
    """Describe a module's call; autocast is the caller's to add.

    Raises:
        UnsupportedError: the module is not a registered operator, or the call has no description.
    """
    with torch._C.DisableTorchFunction():
        form = module_form(module)
        if form is None or not is_plain(module):
            raise UnsupportedError(f"no registered operator for {type(module).__name__}")
        kind, arguments = form.bind(module, args, kwargs)
        own = {id(t) for t in module.parameters()} | {id(t) for t in module.buffers()}
        encoder = Encoder(notes, frozenset(own))
        # the weights that the configuration of an opaque module does not spell need gradients, too
        implied = {notes.needs_gradient(p) for p in module.parameters()} if form.opaque else set()
        encoder.needing = implied == {True}
        configuration = _configuration(kind, arguments, encoder)
        if False in implied and (True in implied or configuration.gradient):
            name = type(module).__name__
            raise UnsupportedError(f"{name} with frozen weights has no description")
        return configuration


def describe_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    notes: TensorNotes,
) -> Configuration:
    """Describe a torch function's call; autocast is the caller's to add.

    Raises:
        UnsupportedError: the function is not in the table, or the call has no description.
    """
    with torch._C.DisableTorchFunction():
        kind, arguments = bind_function(function, args, kwargs)
        return _configuration(kind, arguments, Encoder(notes))


def _configuration(name: str, arguments: Mapping[str, Any], encoder: Encoder) -> Configuration:
    kind = KINDS[name]
    parameters: dict[str, Json] = {}
    inputs: dict[str, Json] = {}
    order = [n for n in kind.signature.parameters if n in arguments]
    for argument in [*order, *(n for n in arguments if n not in order)]:
        value = arguments[argument]
        parameter = kind.signature.parameters.get(argument)
        if parameter is None and argument != "inplace":
            continue
        encoded = encoder.encode(value)
        if any(True for _ in walk(encoded)):
            if argument in _SIZES:
                raise UnsupportedError(f"{name}: a size that is a tensor depends on its value")
            inputs[argument] = encoded
        elif not _is_default(encoded, parameter):
            parameters[argument] = encoded
    if kind.canonical is not None:
        kind.canonical(parameters, inputs)
    for argument, encoded in inputs.items():
        # nothing differentiates by running statistics: to mark them would only lengthen the text
        if not encoder.needing or argument.startswith("running_"):
            _unmark(encoded)
    return Configuration(name, parameters, inputs, gradient=encoder.needing)


def _unmark(encoded: Json) -> None:
    for spec in walk(encoded):
        spec.pop("gradient", None)


def _is_default(encoded: Json, parameter: inspect.Parameter | None) -> bool:
    if parameter is None:
        return encoded is False
    if parameter.kind is parameter.VAR_POSITIONAL:
        return bool(encoded == [])
    if parameter.default is inspect.Parameter.empty:
        return False
    default: Any = parameter.default
    spelled = list(default) if isinstance(default, tuple) else encode_constant(default)
    sorts = {type(encoded), type(spelled)}
    if sorts <= _ATOMS:
        # 1 and 1.0 are one default; True is neither
        return (len(sorts) == 1 or sorts == {int, float}) and bool(encoded == spelled)
    return canonical_json(encoded) == canonical_json(spelled)
