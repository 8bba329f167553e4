"""Functions whose overloads one signature cannot tell apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from opdb.errors import UnsupportedError

Bound: TypeAlias = tuple[str, dict[str, Any]]


def _extreme(kind: str, pairwise: str, input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    other = kwargs.get("other", args[0] if args else None)
    if isinstance(other, Tensor):
        return pairwise, {"input": input, "other": other}
    dim = kwargs.pop("dim", kwargs.pop("axis", args[0] if args else None))
    keepdim = kwargs.pop("keepdim", args[1] if len(args) > 1 else False)
    _nothing_left(kind, kwargs)
    return kind, {"input": input, "dim": dim, "keepdim": keepdim}


def _nothing_left(kind: str, kwargs: Mapping[str, Any]) -> None:
    if kwargs:
        raise UnsupportedError(f"{kind}: unexpected arguments {sorted(kwargs)}")


def _deviation(kind: str, input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    values = list(args)
    dim = kwargs.pop("dim", None)
    unbiased = kwargs.pop("unbiased", True)
    if values and not isinstance(values[0], bool):
        dim = values.pop(0)
    if values:
        unbiased = values.pop(0)
    keepdim = kwargs.pop("keepdim", values.pop(0) if values else False)
    correction = kwargs.pop("correction", int(unbiased))
    _nothing_left(kind, kwargs)
    return kind, {"input": input, "dim": dim, "correction": correction, "keepdim": keepdim}


def _cast(dtype: torch.dtype, input: Tensor, memory_format: Any = None) -> Bound:
    return "to", {"input": input, "dtype": dtype, "memory_format": memory_format}


def _moved(input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    return "to", {"input": input, "memory_format": kwargs.get("memory_format")}


def _to(input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    dtype, copy = kwargs.get("dtype"), kwargs.get("copy", False)
    flags = []
    for value in (*args, kwargs.get("other")):
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            dtype = value.dtype
        elif isinstance(value, bool):
            flags.append(value)
    # positionally: non_blocking, copy
    copy = flags[1] if len(flags) > 1 else copy
    arguments = {"input": input, "dtype": dtype, "copy": copy}
    return "to", arguments | {"memory_format": kwargs.get("memory_format")}


def _type(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Bound:
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        dtype = getattr(torch, name, None)
        dtype = getattr(dtype, "dtype", None)
    return "to", {"input": input, "dtype": dtype}


def _type_as(input: Tensor, other: Tensor) -> Bound:
    return "to", {"input": input, "dtype": other.dtype}


def _items(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _getitem(input: Tensor, index: Any) -> Bound:
    return "getitem", {"input": input, "index": _items(index)}


def _setitem(input: Tensor, index: Any, value: Any) -> Bound:
    arguments = {"input": input, "index": _items(index), "value": value}
    return "setitem", arguments | {"inplace": True}


def _where(condition: Tensor, *args: Any, **kwargs: Any) -> Bound:
    if not args and not kwargs:
        return "nonzero", {"input": condition, "as_tuple": True}
    values = [*args, *(kwargs[n] for n in ("input", "self", "x", "other", "y") if n in kwargs)]
    first, second = values
    return "where", {"condition": condition, "input": first, "other": second}


def _where_method(first: Tensor, condition: Tensor, other: Any) -> Bound:
    return "where", {"condition": condition, "input": first, "other": other}


def _arange(*args: Any, **kwargs: Any) -> Bound:
    start, end, step = kwargs.get("start", 0), kwargs.get("end"), kwargs.get("step", 1)
    if len(args) == 1 and end is None:
        end = args[0]
    elif args:
        start, end, step = (*args, *(end, step)[len(args) - 1 :]) if len(args) < 3 else args
    return "arange", {"start": start, "end": end, "step": step, "dtype": kwargs.get("dtype")}


def _randint(*args: Any, **kwargs: Any) -> Bound:
    values = list(args)
    size = kwargs.get("size") or values.pop()
    low = kwargs.get("low", values.pop(0) if len(values) > 1 else 0)
    high = kwargs.get("high", values.pop(0) if values else None)
    arguments = {"low": low, "high": high, "size": size}
    return "randint", arguments | {"dtype": kwargs.get("dtype")}


def _constant(data: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Bound:
    if isinstance(data, Tensor):
        return "to", {"input": data, "dtype": dtype, "copy": True}
    shape, sample = [], data
    while isinstance(sample, list | tuple | range):
        shape.append(len(sample))
        sample = sample[0] if len(sample) else 0.0
    if dtype is None:
        kinds = {bool: torch.bool, int: torch.int64, complex: torch.complex64}
        dtype = kinds.get(type(sample), torch.get_default_dtype())
    return "tensor", {"shape": shape, "dtype": dtype}


def _as_tensor(data: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Bound:
    if isinstance(data, Tensor):
        return "to", {"input": data, "dtype": dtype}
    return _constant(data, dtype)


def _norm(input: Tensor, ord: Any = None, dim: Any = None, **kwargs: Any) -> Bound:
    """Bind torch.linalg.norm: over two dimensions an order means a matrix's norm, not a vector's.

    The Frobenius norm is the vector's of all elements.
    """
    over_two = input.dim() == 2 if dim is None else isinstance(dim, list | tuple) and len(dim) == 2
    if ord is not None and ord != "fro" and over_two:
        raise UnsupportedError(f"a matrix norm of order {ord!r}")
    keepdim, dtype = kwargs.pop("keepdim", False), kwargs.pop("dtype", None)
    _nothing_left("vector_norm", kwargs)
    arguments = {"input": input, "ord": 2 if ord in (None, "fro") else ord, "dim": dim}
    return "vector_norm", arguments | {"keepdim": keepdim, "dtype": dtype}


def _round(inplace: bool, input: Tensor, decimals: int = 0, **kwargs: Any) -> Bound:
    arguments = {"input": input, "decimals": decimals}
    return "round", arguments | ({"inplace": True} if inplace else {})


def _sort(kind: str, input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    values, stable = list(args), kwargs.pop("stable", False)
    if values and isinstance(values[0], bool):
        stable = values.pop(0)
    dim = kwargs.pop("dim", values.pop(0) if values else -1)
    descending = kwargs.pop("descending", values.pop(0) if values else False)
    _nothing_left(kind, kwargs)
    arguments = {"input": input, "dim": dim, "descending": descending}
    return kind, arguments | {"stable": bool(stable)}


def _clones_memory(input: Tensor, memory_format: Any = None) -> Bound:
    if memory_format is torch.contiguous_format:
        memory_format = None
    return "contiguous", {"input": input, "memory_format": memory_format}


def _rolled(input: Tensor, shifts: Any, *args: Any, **kwargs: Any) -> Bound:
    dims = kwargs.get("dims", args[0] if args else ())
    if not isinstance(shifts, list | tuple) and args and len(args) > 1:
        shifts, dims = (shifts, *args), ()
    return "roll", {"input": input, "shifts": shifts, "dims": dims}


_CASTS = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "byte": torch.uint8,
    "bool": torch.bool,
    "cfloat": torch.complex64,
}
OVERLOADS: Mapping[Callable[..., Any], Callable[..., Bound]] = {
    **{getattr(Tensor, name): partial(_cast, dtype) for name, dtype in _CASTS.items()},
    **{f: partial(_extreme, "max", "maximum") for f in (torch.max, Tensor.max)},
    **{f: partial(_extreme, "min", "minimum") for f in (torch.min, Tensor.min)},
    **{f: partial(_deviation, "std") for f in (torch.std, Tensor.std)},
    **{f: partial(_deviation, "var") for f in (torch.var, Tensor.var)},
    torch.std_mean: partial(_deviation, "std_mean"),
    torch.var_mean: partial(_deviation, "var_mean"),
    **{f: partial(_sort, "sort") for f in (torch.sort, Tensor.sort)},
    **{f: partial(_sort, "argsort") for f in (torch.argsort, Tensor.argsort)},
    torch.linalg.norm: _norm,
    **{f: partial(_round, False) for f in (torch.round, Tensor.round)},
    **{f: partial(_round, True) for f in (torch.round_, Tensor.round_)},
    **dict.fromkeys((torch.roll, Tensor.roll), _rolled),
    Tensor.to: _to,
    Tensor.cuda: _moved,
    Tensor.cpu: _moved,
    Tensor.type: _type,
    Tensor.type_as: _type_as,
    Tensor.__getitem__: _getitem,
    Tensor.__setitem__: _setitem,
    torch.where: _where,
    Tensor.where: _where_method,
    torch.arange: _arange,
    torch.randint: _randint,
    torch.tensor: _constant,
    torch.as_tensor: _as_tensor,
    torch.scalar_tensor: _constant,
    torch.asarray: _as_tensor,
    Tensor.contiguous: _clones_memory,
}
