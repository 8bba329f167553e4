"""Large tensors that a model's constructor makes, on meta from the start.

A constructor may ask for one parameter of 30 GB (the experts of a mixture), for tables and for
masks. On meta only their shapes count, so none of them need be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

LARGE_BYTES = 2**27
"""Larger tensors are made on meta. Smaller ones are not: a tensor that outlives the constructor,
such as a cached function's table, needs its values."""

MOST_KNOWN_BYTES = 2**22
"""The largest memory whose values a pass on meta knows (see `opdb.models.known`)."""

_ATOMS = {type(None), int, float, bool, str, torch.dtype, torch.device, torch.layout}
_FILLING = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}
"""In-place operators of one of these sorts fill a tensor, where it is the only one given."""

_TWIN = "_opdb_meta_buffer"
_SMALL_BYTES = 2**13
"""Outputs of operators on less are not looked at: an outer product of it has 16 MB."""


class LargeOnMeta(TorchDispatchMode):
    """Runs dispatcher operators; what they make that is larger than `LARGE_BYTES` is on meta.

    What computes with such a tensor is on meta, too. `largest_bytes` is what the largest of all
    that was made on meta would have taken.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest_bytes = 0
        self._filled: set[object] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        if any(t.is_meta for t in given):
            key = _filling(func, given, args, kwargs)
            if key is not None and key in self._filled:
                return args[0]
            if any(not t.is_meta for t in written(func, args, kwargs)):
                raise RuntimeError(f"{func} writes what is on meta into a tensor on the CPU")
            output = func(*_on_meta(args), **_on_meta(kwargs))
            if key is not None and output is args[0]:
                self._filled.add(key)
            return output
        if func.is_view or func._schema.is_mutable:
            return func(*args, **kwargs)
        if given and sum(t.nbytes for t in given if _is_plain(t)) <= _SMALL_BYTES:
            return func(*args, **kwargs)
        large = _made_on_meta(func, args, kwargs)
        made_bytes = sum(t.nbytes for t in tensors_in(large) if _is_plain(t))
        if made_bytes <= LARGE_BYTES:
            return func(*args, **kwargs)
        self.largest_bytes = max(self.largest_bytes, made_bytes)
        return large

    def held(self, buffer: Tensor) -> Tensor:
        """Return a buffer as a module is to hold it: on meta where its values are never known.

        Of one that is registered twice it is the same tensor.
        """
        if type(buffer) is not Tensor or not _is_plain(buffer) or buffer.is_meta:
            return buffer
        if buffer.untyped_storage().nbytes() <= MOST_KNOWN_BYTES:
            return buffer
        twin: Tensor | None = getattr(buffer, _TWIN, None)
        if twin is None:
            twin = buffer.to("meta")
            setattr(buffer, _TWIN, twin)
            self.largest_bytes = max(self.largest_bytes, twin.nbytes)
        return twin


def written(operator: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operator changes in place."""
    if not operator._schema.is_mutable:
        return []
    named = {a.name: v for a, v in zip(operator._schema.arguments, args, strict=False)} | kwargs
    names = [a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.is_write]
    return tensors_in([named[name] for name in names if name in named])


def _filling(
    operator: Any, given: Sequence[Tensor], args: Any, kwargs: dict[str, Any]
) -> object | None:
    """Return what decides whether a tensor on meta can be filled so; None where it is no filling.

    That changes nothing on meta, but its kernel there is Python, which takes up to a millisecond;
    a constructor fills each weight.
    """
    fills = operator._schema.name.endswith("_") and _FILLING.intersection(operator.tags)
    if not (fills and args and len(given) == 1 and given[0] is args[0]):
        return None
    if not given[0].is_contiguous():  # of memory that is written twice it complains
        return None
    return operator, given[0].dtype, repr((args[1:], kwargs))


def _made_on_meta(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what an operator on the CPU would make, on meta; None where that is not known."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return None
    kwargs = _on_meta(kwargs)
    if any(argument.name == "device" for argument in operator._schema.arguments):
        kwargs["device"] = torch.device("meta")
    try:
        return operator(*_on_meta(args), **kwargs)
    except (RuntimeError, NotImplementedError):  # it asks for values, or has no meta kernel
        return None


def _on_meta(given: Any) -> Any:
    """Return arguments with their tensors, and the device that is asked for, on meta.

    A tensor that is one number may stay on the CPU: operators take it on any device.
    """
    if isinstance(given, torch.device):
        return torch.device("meta")
    if isinstance(given, Tensor):
        return given.to("meta") if given.dim() and given.device.type == "cpu" else given
    if type(given) in (tuple, list):
        return type(given)([_on_meta(each) for each in given])
    if type(given) is dict:
        return {name: _on_meta(each) for name, each in given.items()}
    if type(given) in _ATOMS:
        return given
    return pytree.tree_map(lambda leaf: leaf if leaf is given else _on_meta(leaf), given)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in arguments or outputs, in order."""
    if isinstance(value, Tensor):
        return [value]
    if type(value) in _ATOMS:
        return []
    if type(value) in (tuple, list, dict):
        parts = value.values() if type(value) is dict else value
        return [tensor for part in parts for tensor in tensors_in(part)]
    return [each for each in pytree.tree_leaves(value) if isinstance(each, Tensor)]


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor's bytes are its own: it is neither sparse nor a wrapper."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
