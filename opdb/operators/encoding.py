"""Arguments to JSON and back. Nothing here names an address, a value or a Python object."""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import is_spec
from opdb.kinds.layout import channels_last_strides, contiguous_strides
from opdb.records import Json

_MEMORY_FORMATS = {
    name: getattr(torch, name)
    for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
}
_DTYPES = {str(d).removeprefix("torch."): d for d in vars(torch).values() if type(d) is torch.dtype}
_PYTHON_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
"""The dtypes that torch takes Python's own types for."""


class TensorNotes(Protocol):
    """Say what the watcher of a model knows of a tensor."""

    def values(self, tensor: Tensor) -> Json | None:
        """Return the tensor's value class, None for normal."""
        ...

    def is_weight(self, tensor: Tensor) -> bool:
        """Return whether the tensor is a parameter or a buffer."""
        ...

    def needs_gradient(self, tensor: Tensor) -> bool | None:
        """Return whether the tensor needs a gradient; None where no gradients are taken."""
        ...


class NoNotes:
    """Know nothing but that parameters are weights."""

    def values(self, tensor: Tensor) -> Json | None:
        """Return None: normal."""
        return None

    def is_weight(self, tensor: Tensor) -> bool:
        """Return whether the tensor is an nn.Parameter."""
        return isinstance(tensor, torch.nn.Parameter)

    def needs_gradient(self, tensor: Tensor) -> bool | None:
        """Return None: no gradients are taken."""
        return None


def is_wrapped(tensor: Tensor) -> bool:
    """Return whether torch.func stands between the caller and the tensor that is computed with."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without the package: "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of that name.

    Raises:
        UnsupportedError: this torch has none.
    """
    if name not in _DTYPES:
        raise UnsupportedError(f"torch {torch.__version__} has no dtype {name!r}")
    return _DTYPES[name]


def layout_of(tensor: Tensor) -> Json | None:
    """Return a tensor's layout: None for contiguous, "channels_last", or its strides."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    if strides == contiguous_strides(shape):
        return None
    if len(shape) in (4, 5) and strides == channels_last_strides(shape):
        return "channels_last"
    if tensor.is_contiguous():
        return None
    return strides


class Encoder:
    """Encode one call's arguments; tensors are numbered in the order in which they are met.

    `needing` says whether one of them needs a gradient; one that does not is marked.
    """

    def __init__(self, notes: TensorNotes, weights: frozenset[int] = frozenset()) -> None:
        self.notes = notes
        self.weights = weights
        self._seen: dict[object, int] = {}
        self._kept: list[Tensor] = []
        self.count = 0
        self.needing = False

    def encode(self, value: object) -> Json:
        """Return the JSON of an argument.

        Raises:
            UnsupportedError: JSON cannot name the argument.
        """
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return [self.encode(item) for item in value]
        if isinstance(value, range):
            return list(value)
        return encode_constant(value)

    def _tensor(self, tensor: Tensor) -> Json:
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
            raise UnsupportedError("a nested, sparse or quantized tensor has no description")
        if is_wrapped(tensor):
            raise UnsupportedError("a tensor inside torch.vmap or torch.func has no description")
        index, self.count = self.count, self.count + 1
        place = (
            tensor.untyped_storage()._cdata,
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        )
        earlier = self._seen.get(place)
        if earlier is not None:
            return {"same": earlier}
        self._seen[place] = index
        self._kept.append(tensor)  # a storage that is freed may give its address to another
        spec: dict[str, Json] = {"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)}
        layout = layout_of(tensor)
        if layout is not None:
            spec["layout"] = layout
        if id(tensor) in self.weights or self.notes.is_weight(tensor):
            spec["role"] = "weight"
        else:
            values = self.notes.values(tensor)
            if values is not None and values != "normal":
                spec["values"] = values
        self._mark(spec, tensor)
        return spec

    def _mark(self, spec: dict[str, Json], tensor: Tensor) -> None:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return
        needs = self.notes.needs_gradient(tensor)
        self.needing = self.needing or bool(needs)
        if needs is False:
            spec["gradient"] = False


def encode_constant(value: object) -> Json:
    """Return the JSON of an argument that is neither a tensor nor a sequence.

    Raises:
        UnsupportedError: JSON cannot name the argument.
    """
    if value is None or type(value) is int:
        return value
    if isinstance(value, bool | str):
        return str(value.value) if isinstance(value, enum.Enum) else value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else {"float": str(number)}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, type) and value in _PYTHON_DTYPES:
        return {"dtype": _PYTHON_DTYPES[value]}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, slice):
        return {"slice": [encode_constant(n) for n in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise UnsupportedError(f"an argument of type {type(value).__name__} has no JSON")


def _memory_format(name: str) -> torch.memory_format:
    if name not in _MEMORY_FORMATS:
        raise UnsupportedError(f"unknown memory format {name!r}")
    return _MEMORY_FORMATS[name]  # type: ignore[no-any-return]


_CONSTANTS: Mapping[str, Callable[[Any], object]] = {
    "float": lambda text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "dtype": dtype_of,
    "memory_format": _memory_format,
    "slice": lambda ends: slice(*ends),
    "ellipsis": lambda _: Ellipsis,
    "complex": lambda parts: complex(*parts),
}


def decode(value: Json, tensor: Callable[[Json], Tensor]) -> Any:
    """Return the argument that a JSON value names; `tensor` gives the tensor of a spec.

    Sequences come back as tuples, which every torch function takes.

    Raises:
        UnsupportedError: the JSON does not name an argument.
    """
    if isinstance(value, list):
        return tuple(decode(item, tensor) for item in value)
    if not isinstance(value, dict):
        return value
    if is_spec(value) or "same" in value:
        return tensor(value)
    if len(value) == 1:
        (name, content) = next(iter(value.items()))
        if name in _CONSTANTS:
            try:
                return _CONSTANTS[name](content)
            except (KeyError, TypeError, ValueError) as error:
                raise UnsupportedError(f"not an argument: {value!r}") from error
    raise UnsupportedError(f"not an argument: {value!r}")
