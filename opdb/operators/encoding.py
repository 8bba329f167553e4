"""Arguments to JSON and back. Nothing here names an address, a value or a Python object."""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS, is_spec
from opdb.kinds.products import imbalance_of
from opdb.kinds.view import View, channels_last_strides, contiguous_strides
from opdb.models.inputs import dtype_name, dtype_of
from opdb.records import Json

_MEMORY_FORMATS = {
    name: getattr(torch, name)
    for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
}
# The dtypes that torch takes Python's own types for.
_PYTHON_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


class TensorNotes:
    """What the watcher of a model knows of a tensor: here nothing but that parameters are weights.

    `needs_gradient` is None where no gradients are taken.
    """

    def values(self, tensor: Tensor) -> Json | None:
        return None

    def is_weight(self, tensor: Tensor) -> bool:
        return isinstance(tensor, torch.nn.Parameter)

    def needs_gradient(self, tensor: Tensor) -> bool | None:
        return None


def is_wrapped(tensor: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


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
        if tensor.is_floating_point() or tensor.is_complex():
            needs = self.notes.needs_gradient(tensor)
            self.needing = self.needing or bool(needs)
            if needs is False:
                spec["gradient"] = False
        return spec


def encode_constant(value: object) -> Json:
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


_CONSTANTS: Mapping[str, Callable[[Any], object]] = {
    "float": float,
    "dtype": dtype_of,
    "memory_format": _MEMORY_FORMATS.__getitem__,
    "slice": lambda ends: slice(*ends),
    "ellipsis": lambda _: Ellipsis,
    "complex": lambda parts: complex(*parts),
}


def decode(value: Json, tensor: Callable[[Json], Tensor]) -> Any:
    """Return the argument that a JSON value names; `tensor` gives the tensor of a spec.

    Sequences come back as tuples, which every torch function takes.
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


def no_tensor(spec: Json) -> Tensor:
    raise UnsupportedError(f"a tensor among the parameters: {spec!r}")


# the tensors that a configuration describes


def generator_on(device: torch.device | str, seed: int) -> torch.Generator | None:
    """Return a seeded generator on a device; None on meta, where no values are drawn."""
    on_meta = torch.device(device).type == "meta"
    return None if on_meta else torch.Generator(device).manual_seed(seed)


def adjusted_spec(view: View, name: str, spec: Json) -> Json:
    """Return a spec with a range for indices that declare none, so that they stay in bounds."""
    whole = not spec["dtype"].startswith(("float", "bfloat", "complex", "bool"))
    if not whole:
        return spec
    bound = KINDS[view.configuration.kind].bound_rule(view, name)
    if bound is None:
        return spec
    values = spec.get("values")
    low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, bound)
    return {**spec, "values": {"range": [max(0, min(low, bound - 1)), max(1, min(high, bound))]}}


def tame(view: View, name: str, tensor: Tensor) -> Tensor:
    """Change the values of arguments that must obey a rule; returns the tensor.

    Variances and arguments of logarithms are positive; boxes have their corners in order; groups
    end one after the other, the last where what they divide ends, and are filled as by a router
    that draws the group of each row.
    """
    kind = KINDS[view.configuration.kind]
    if (kind.name, name) == ("grouped_mm", "offs"):
        return _ends(tensor, view)
    floating = tensor.is_floating_point() and tensor.numel() > 0
    if not floating:
        return tensor
    once = tensor[tuple(slice(None if stride else 1) for stride in tensor.stride())]
    if name == "running_var" or name in kind.positive:
        once.abs_().add_(0.5)
    if name in kind.probabilities:
        once.sigmoid_()
    if kind.name in ("nms", "roi_align") and name == "boxes" and tensor.dim() == 2:
        return _boxes(tensor, 64.0)
    return tensor


def _ends(tensor: Tensor, view: View) -> Tensor:
    first, second = view.shape(), view.shape("mat2")
    divided = first[-2] if len(second) == 3 else first[-1] if len(first) == 2 else second[-1]
    if not tensor.numel():
        return tensor
    ranks = torch.arange(1, tensor.numel() + 1, dtype=torch.float64)
    drawn = torch.multinomial(ranks ** -imbalance_of(view), divided, replacement=True)
    return tensor.copy_(torch.bincount(drawn, minlength=tensor.numel()).cumsum(0))


def _boxes(tensor: Tensor, extent: float) -> Tensor:
    corners = tensor[:, -4:]
    corners.sigmoid_().mul_(extent)
    corners[:, 2:].add_(corners[:, :2])
    if tensor.shape[1] == 5:
        tensor[:, 0] = 0  # the image's index in the batch
    return tensor
