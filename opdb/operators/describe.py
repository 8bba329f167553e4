"""From a call that is about to run to its configuration; operators by the names that users give."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from opdb.errors import UnknownNameError, UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.registry import parse_signature
from opdb.kinds.view import walk
from opdb.operators.encoding import Encoder, NoNotes, TensorNotes, encode_constant
from opdb.operators.functions import Form as FunctionForm
from opdb.operators.functions import bind_function, forms_by_name, metadata_functions
from opdb.operators.modules import FORMS, PACKED, ModuleForm, is_plain, module_form
from opdb.records import Configuration, Form, Json, canonical_json

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
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], notes: TensorNotes
) -> Configuration:
    """Describe a module's call; autocast is the caller's to add."""
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


# operators by name, from the reviewed table alone
#
# `nn.Conv2d`, `torch.nn.Conv2d` and `Conv2d` are one class; `F.conv2d` and
# `torch.nn.functional.conv2d` one function; a kind's own name (`conv2d`) stands for its function,
# or its module where it has none.


_PREFIXES = {
    "torch.nn.functional.": "F.",
    "nn.functional.": "F.",
    "torch.nn.": "nn.",
    "torch.Tensor.": "Tensor.",
    "torch.linalg.": "linalg.",
    "torch.special.": "special.",
    "torch.fft.": "fft.",
}
_NOT_CONSTRUCTED = {"self", "device", "dtype", "training", "weight_dtype"}


@dataclass(frozen=True)
class NamedOperator:
    """A reviewed operator: what is called, and the names of what it takes.

    `constructed` is what a module is constructed with, `taken` what the call takes; each says
    whether a name must be given. A function is not constructed.
    """

    name: str
    form: Form
    called: Callable[..., Any]
    constructed: Mapping[str, bool]
    taken: Mapping[str, bool]


def find_operator(name: str) -> NamedOperator:
    prefix = next((old for old in _PREFIXES if name.startswith(old)), "")
    spelled = _PREFIXES.get(prefix, "") + name.removeprefix(prefix)
    known = operators()
    for candidate in (spelled, f"nn.{spelled}"):
        if candidate in known:
            return known[candidate]
    if name in KINDS:
        return _of_kind(name)
    raise UnknownNameError("operator", spelled, known)


@cache
def operators() -> Mapping[str, NamedOperator]:
    """Return every reviewed operator by its name: "nn.Conv2d", "F.conv2d", "torch.cat"."""
    found = {f"nn.{form.module.__name__}": form for form in reversed(FORMS)}
    modules = {name: _module(name, form) for name, form in found.items()}
    return modules | {name: _function(name, form) for name, form in forms_by_name().items()}


def _of_kind(kind: str) -> NamedOperator:
    """Return the function of a kind, or its module where it has none."""
    known = operators()
    for name, form in forms_by_name().items():
        if form.kind == kind and not form.inplace and not form.swapped:
            return known[name]
    for each in FORMS:
        if each.kind == kind:
            return known[f"nn.{each.module.__name__}"]
    raise UnknownNameError("operator", kind, known)


def _module(name: str, form: ModuleForm) -> NamedOperator:
    taken = _needed(parse_signature(form.call))
    constructed = _needed(inspect.signature(form.module.__init__))
    if "kwargs" in constructed:
        # recurrent layers hand what they are given to their base
        constructed = _needed(KINDS[form.kind].signature)
    without = _NOT_CONSTRUCTED | taken.keys()
    kept = {n: needed for n, needed in constructed.items() if n not in without}
    return NamedOperator(
        name, "module", form.module, kept, {n: v for n, v in taken.items() if n not in PACKED}
    )


def _function(name: str, form: FunctionForm) -> NamedOperator:
    needed = _needed(form.signature)
    taken = {n: must for n, must in needed.items() if not n.startswith("_") and n != "out"}
    return NamedOperator(name, "function", form.function, {}, taken)


def _needed(signature: inspect.Signature) -> dict[str, bool]:
    return {
        name: p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        for name, p in signature.parameters.items()
    }


# calls as torch's profiler recorded them: shapes, types, constants


# Types of C++, as the profiler spells those of tensors' elements.
ELEMENT_TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "long int": torch.int64,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "signed char": torch.int8,
    "unsigned char": torch.uint8,
    "bool": torch.bool,
}

# Arguments that the profiler records as a number of torch's own.
_CODES = frozenset(["dtype", "memory_format", "layout"])

_SCALARS = frozenset(["Scalar", "ScalarList"])


# What making a call of a record raises that does not fit: torch refuses some of its shapes.
_NO_RECORD = (ValueError, SyntaxError, IndexError, TypeError, RuntimeError, MemoryError)


@dataclass(frozen=True)
class Profiled:
    """A call described; `unknown` are parameters that the profile does not tell, such as texts."""

    configuration: Configuration
    unknown: frozenset[str]


def describe_profiled(name: str, args: Mapping[str, Json]) -> Profiled:
    """Describe the call of an event named "aten::conv2d" with these `args`.

    The values of tensors, and which are weights, are not in a profile, and so not in what is
    returned either.
    """
    library, _, function = name.partition("::")
    if library != "aten" or not function or "Input Dims" not in args:
        raise UnsupportedError(f"no registered operator for {name} with recorded shapes")
    for schema in torch._C._jit_get_schemas_for_operator(name):
        with suppress(UnsupportedError, AttributeError, *_NO_RECORD):
            positional, keywords, unknown = _recorded(schema.arguments, args)
            operator = getattr(torch.ops.aten, function)
            return Profiled(describe_function(operator, positional, keywords, NoNotes()), unknown)
    raise UnsupportedError(f"no registered operator for {name}")


def _recorded(
    schema: Sequence[Any], args: Mapping[str, Json]
) -> tuple[tuple[Any, ...], dict[str, Any], frozenset[str]]:
    """Return positional and named arguments; constants at the schema's default are left out."""
    types, dims = args.get("Input type", ()), args["Input Dims"]
    strides, constants = args.get("Input Strides"), args.get("Concrete Inputs")
    if constants is None or not len(types) == len(dims) == len(constants) <= len(schema):
        raise ValueError("another overload")
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    unknown: set[str] = set()
    needed = 0
    for place, (argument, kind) in enumerate(zip(schema, types, strict=False)):
        is_tensor = "Tensor" in str(argument.type)
        if kind in ELEMENT_TYPES and is_tensor:
            value: Any = _empty(dims[place], strides[place] if strides else None, kind)
        elif kind == "TensorList" and is_tensor:
            raise ValueError("the dtypes of a list of tensors are not recorded")
        elif kind in _SCALARS and not is_tensor:
            value = ast.literal_eval(constants[place])
            if argument.name in _CODES:
                raise ValueError(f"{argument.name} is a number in the record")
        elif kind == "" and not is_tensor and "str" in str(argument.type):
            unknown.add(argument.name)
            continue
        elif kind == "":
            value = None
        else:
            raise ValueError("another overload")
        is_default = argument.has_default_value() and value == argument.default_value
        if argument.kwarg_only:
            if not is_default:
                keywords[argument.name] = value
            continue
        positional.append(value)
        if not is_default:
            needed = len(positional)
    return tuple(positional[:needed]), keywords, frozenset(unknown)


def _empty(shape: Sequence[int], strides: Sequence[int] | None, kind: str) -> Tensor:
    if strides is None or len(strides) != len(shape):
        return torch.empty(shape, dtype=ELEMENT_TYPES[kind], device="meta")
    return torch.empty_strided(shape, strides, dtype=ELEMENT_TYPES[kind], device="meta")
