"""Describe an aten operator's call as torch's profiler recorded it: shapes, types, constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.operators.describe import describe_function
from opdb.operators.encoding import NoNotes
from opdb.records import Configuration, Json

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
"""Types of C++, as the profiler spells those of tensors' elements."""

_CODES = frozenset(["dtype", "memory_format", "layout"])
"""Arguments that the profiler records as a number of torch's own."""

_SCALARS = frozenset(["Scalar", "ScalarList"])


_NO_RECORD = (ValueError, SyntaxError, IndexError, TypeError, RuntimeError, MemoryError)
"""What making a call of a record raises that does not fit: torch refuses some of its shapes."""


@dataclass(frozen=True)
class Profiled:
    """A call described; `unknown` are parameters that the profile does not tell, such as texts."""

    configuration: Configuration
    unknown: frozenset[str]


def describe_profiled(name: str, args: Mapping[str, Json]) -> Profiled:
    """Describe the call of an event named "aten::conv2d" with these `args`.

    The values of tensors, and which are weights, are not in a profile, and so not in what is
    returned either.

    Raises:
        UnsupportedError: the event has no shapes, or no registered operator describes it.
    """
    library, _, function = name.partition("::")
    if library != "aten" or not function or "Input Dims" not in args:
        raise UnsupportedError(f"no registered operator for {name} with recorded shapes")
    for schema in torch._C._jit_get_schemas_for_operator(name):
        try:
            positional, keywords, unknown = _arguments(schema.arguments, args)
        except _NO_RECORD:
            continue
        for called in _callables(function):
            try:
                found = describe_function(called, positional, keywords, NoNotes())
            except (UnsupportedError, TypeError, ValueError, AttributeError, IndexError):
                continue
            return Profiled(found, unknown)
    raise UnsupportedError(f"no registered operator for {name}")


@cache
def _callables(function: str) -> tuple[Callable[..., Any], ...]:
    """Return what a user may have called to reach an aten operator."""
    homes: Iterator[Any] = iter((torch, torch.nn.functional, Tensor, torch._C._nn))
    found = (getattr(home, function, None) for home in homes)
    return tuple(each for each in found if callable(each))


def _arguments(
    schema: Sequence[Any], args: Mapping[str, Json]
) -> tuple[tuple[Any, ...], dict[str, Any], frozenset[str]]:
    """Return positional and named arguments; constants at the schema's default are left out.

    Raises:
        ValueError: the record does not fit the schema.
    """
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
            value: Any = _tensor(dims[place], strides[place] if strides else None, kind)
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


def _tensor(shape: Sequence[int], strides: Sequence[int] | None, kind: str) -> Tensor:
    if strides is None or len(strides) != len(shape):
        return torch.empty(shape, dtype=ELEMENT_TYPES[kind], device="meta")
    return torch.empty_strided(shape, strides, dtype=ELEMENT_TYPES[kind], device="meta")
