"""Which tensors of a pass on meta have values: small ones of indices and masks, and no large one.

A constructor may ask for one parameter of 30 GB (the experts of a mixture), for tables and for
masks. On meta only their shapes count, so large tensors are on meta from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.models.inputs import is_index, make, seeded, tensors
from opdb.models.meta import on_meta
from opdb.records import Json

LARGE_BYTES = 2**27
"""Larger tensors are made on meta. Smaller ones are not: a tensor that outlives the constructor,
such as a cached function's table, needs its values."""

MOST_KNOWN_BYTES = 2**22
"""The largest memory whose values a pass on meta knows (see `opdb.models.known`)."""

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

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors((args, kwargs))
        if any(t.is_meta for t in given):
            if any(not t.is_meta for t in written(func, args, kwargs)):
                raise RuntimeError(f"{func} writes what is on meta into a tensor on the CPU")
            return on_meta(func, _on_meta(args), _on_meta(kwargs))
        if func.is_view or func._schema.is_mutable:
            return func(*args, **kwargs)
        if given and sum(t.nbytes for t in given if _is_plain(t)) <= _SMALL_BYTES:
            return func(*args, **kwargs)
        large = _made_on_meta(func, args, kwargs)
        made_bytes = sum(t.nbytes for t in tensors(large) if _is_plain(t))
        if made_bytes <= LARGE_BYTES:
            return func(*args, **kwargs)
        self.largest_bytes = max(self.largest_bytes, made_bytes)
        return large


def written(operator: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operator changes in place."""
    if not operator._schema.is_mutable:
        return []
    named = {a.name: v for a, v in zip(operator._schema.arguments, args, strict=False)} | kwargs
    names = [a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.is_write]
    return tensors([named[name] for name in names if name in named])


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
    return {n: _on_meta(each) for n, each in given.items()} if type(given) is dict else given


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor's bytes are its own: it is neither sparse nor a wrapper."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


MOST_ELEMENTS = 2**18
"""Values of larger tensors are not kept: a pass on meta stays fast, and needs no memory."""

MOST_HELD = 512
"""At this many tensors, and each time they have doubled, those that nothing holds are dropped."""

_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
_ALLOCATIONS = ("empty", "new_empty")
_ASKING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

Run = Callable[[Any, Any, dict[str, Any]], Any]


class KnownValues:
    """Runs dispatcher operators on meta, and beside them on the CPU where all values are known.

    Known are buffers and inputs that hold no floating-point numbers: as the model was built with
    them, or given as an example, else drawn as the model's inputs are described; and whatever is
    made of known values alone. So a model that asks whether a mask is full, or at which places an
    index stands, gets its answer without any of its weights. Values are kept for the storages of
    meta tensors: views share them, and operators in place change them. A copy of known values to
    the CPU has them. Memory of such a type that nothing was written to yet holds zeros: a model
    that reads it would find anything.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}
        self._most_held = MOST_HELD

    def declare(self, described: Json, given: Tensor) -> None:
        """Draw the values of a model's input on meta as it is described, each time the same.

        Of one whose values are known already, these stay; of one that is too large to be kept,
        none are drawn.
        """
        if is_index(given.dtype) and _is_small(given) and self.value(given) is None:
            with seeded("cpu"):
                self.keep(given, make(described, "cpu"))

    def value(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values on the CPU; None where they are not known."""
        if not tensor.is_meta:
            return tensor if tensor.device.type == "cpu" else None
        found = self._held.get(tensor.untyped_storage()._cdata)
        if found is None or tensor.numel() > MOST_ELEMENTS:
            return None
        if tensor.untyped_storage().nbytes() != found[1].nbytes():
            return None  # it was resized
        values = torch.empty(0, dtype=tensor.dtype)
        return values.set_(found[1], tensor.storage_offset(), tensor.shape, tensor.stride())

    def run(self, operator: Any, args: Any, kwargs: dict[str, Any], run: Run) -> Any:
        """Return what `run` returns of an operator, or what its arguments' values say."""
        if operator.is_view:
            return run(operator, args, kwargs)
        if _leaves_meta(operator, args, kwargs):
            found = self._on_cpu(operator, args, kwargs)
            return run(operator, args, kwargs) if found is None else found[0]
        if _ASKING.intersection(operator.tags):
            found = self._on_cpu(operator, args, kwargs)
            if found is None:
                return run(operator, self._with_masks(operator, args), kwargs)
            output = pytree.tree_map_only(Tensor, _without_values, found[0])
        else:
            output = run(operator, args, kwargs)
            small = all(t.numel() <= MOST_ELEMENTS for t in tensors(output))
            found = self._on_cpu(operator, args, kwargs) if small else None
        if operator._schema.is_mutable:
            if found is None:
                self._forget(written(operator, args, kwargs))
        elif found is not None:
            for tensor, value in zip(tensors(output), tensors(found[0]), strict=True):
                self.keep(tensor, value)
        elif _allocates(operator):
            for tensor in tensors(output):
                if is_index(tensor.dtype):
                    self.keep(tensor, torch.zeros((), dtype=tensor.dtype))
        return output

    def shown(self, function: Any, args: Any) -> Any:
        """Return a function's arguments, with the values of what it gives to NumPy."""
        if function not in (Tensor.numpy, Tensor.__array__) or not args[0].is_meta:
            return args
        values = self.value(args[0])
        return args if values is None else (values, *args[1:])

    def made(self, function: Any, args: Any, output: Any) -> None:
        """Keep the values of a tensor that a function made on meta of lists or NumPy's arrays."""
        if function in _FROM_DATA and isinstance(output, Tensor) and output.is_meta:
            data = args[-1:] if function is Tensor.new_tensor else args[:1]
            if not tensors(data):
                for given in data:
                    self.keep(output, torch.tensor(given, dtype=output.dtype))

    def _on_cpu(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Run an operator on its arguments' values; None where one of them is not known."""
        values = self._values(operator, args, kwargs)
        if values is None:
            return None
        try:
            return (operator(*values[0], **values[1]),)
        except (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError):
            return None  # the call is wrong, and fails on meta too, or the CPU lacks the operator

    def _with_masks(self, operator: Any, args: Any) -> Any:
        """Return the arguments of an indexing with its known masks: they decide the shape."""
        if operator is not torch.ops.aten.index.Tensor:
            return args
        masks = [i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]]
        known = [self.value(i) if m else None for i, m in zip(args[1], masks, strict=True)]
        return args[0], [i if v is None else v for i, v in zip(args[1], known, strict=True)]

    def _values(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the arguments with the values of their tensors; None where one is not known."""
        if torch.Tag.nondeterministic_seeded in operator.tags or _allocates(operator):
            return None
        given = tensors((args, kwargs))
        if not any(tensor.is_meta for tensor in given) and not _makes_on_meta(kwargs):
            return None
        known = {id(tensor): self.value(tensor) for tensor in given}
        if any(value is None for value in known.values()):
            return None
        args, kwargs = pytree.tree_map_only(Tensor, lambda t: known[id(t)], (args, kwargs))
        return args, {**kwargs, "device": "cpu"} if _makes_on_meta(kwargs) else kwargs

    def keep(self, tensor: Tensor, values: Tensor) -> None:
        """Keep the values of a tensor on meta, unless they are many or known already."""
        if not _is_small(tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self._held or storage.nbytes() > MOST_KNOWN_BYTES:
            return
        if len(self._held) >= self._most_held:
            self._held = {k: v for k, v in self._held.items() if not v[0].expired()}
            self._most_held = max(MOST_HELD, 2 * len(self._held))
        self._held[storage._cdata] = StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes())
        held = self.value(tensor)
        assert held is not None
        held.copy_(values)

    def _forget(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if tensor.is_meta:
                self._held.pop(tensor.untyped_storage()._cdata, None)


def _is_small(tensor: Tensor) -> bool:
    return tensor.is_meta and tensor.numel() <= MOST_ELEMENTS


def with_index_known(function: Any, args: Any) -> Any:
    """Return a call's arguments with lists in an index made tensors that keep their values.

    On meta, PyTorch makes a tensor without values of a list that a tensor is indexed by.
    """
    if function not in (Tensor.__getitem__, Tensor.__setitem__) or not args[0].is_meta:
        return args
    tensor, index, *rest = args
    parts = index if isinstance(index, tuple) else (index,)
    made = tuple(torch.tensor(part) if _is_list(part) else part for part in parts)
    return tensor, made if isinstance(index, tuple) else made[0], *rest


def _is_list(part: object) -> bool:
    return isinstance(part, list) and all(isinstance(each, int) for each in part) and part != []


def _allocates(operator: Any) -> bool:
    name: str = operator._schema.name
    return name.removeprefix("aten::").startswith(_ALLOCATIONS)


def _leaves_meta(operator: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operator copies from meta to the CPU, where there must be values."""
    if operator is torch.ops.aten._to_copy.default:
        device = kwargs.get("device")
        return args[0].is_meta and device is not None and torch.device(device).type == "cpu"
    return operator is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta


def _makes_on_meta(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "meta"


def _without_values(made: Tensor) -> Tensor:
    return torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="meta")
