"""Model inputs as data: substitute the batch, make the tensors, describe given ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, TypeGuard

import torch
from torch.utils import _pytree as pytree

from opdb.errors import InputError, UnknownNameError
from opdb.records import Json
from opdb.spec import MEMORY_FORMATS, MIXED, ModelSpec

_DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
    )
}
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions
_SPEC_KEYS = {"shape", "dtype", "layout", "values"}
_MOST_BYTES = 2**63 - 1
SEED = 0
"""Seeds random weights and inputs, so that two loads of one request give the same numbers."""


def is_spec(value: Json) -> bool:
    return isinstance(value, Mapping) and "shape" in value


def resolve(inputs: Mapping[str, Json], request: ModelSpec) -> dict[str, Json]:
    """Return inputs as data with the request's batch, dtype and memory format spelled out.

    Raises:
        InputError: the description is malformed; the message shows the part.
    """
    unknown = set(inputs) - {"args", "kwargs"}
    if unknown:
        raise UnknownNameError("key of inputs", min(unknown), ("args", "kwargs"))
    args, kwargs = inputs.get("args", []), inputs.get("kwargs", {})
    if not isinstance(args, Sequence) or isinstance(args, str) or not isinstance(kwargs, Mapping):
        raise InputError("inputs: args must be a list and kwargs an object")
    named = {_text(name): _resolve(value, request) for name, value in kwargs.items()}
    return {"args": [_resolve(value, request) for value in args], "kwargs": named}


def _resolve(value: Json, request: ModelSpec) -> Json:
    if is_spec(value):
        return _resolve_spec(value, request)
    if isinstance(value, Mapping):
        if set(value) == {"tuple"} and not isinstance(value["tuple"], list | tuple):
            raise InputError(f"inputs: tuple {value['tuple']!r}; give a list of what is in it")
        return {_text(name): _resolve(item, request) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(item, request) for item in value]
    if not (value is None or isinstance(value, str) or _is_number(value)):
        raise InputError(
            f"inputs: {value!r} is a {type(value).__name__}; inputs are tensors, finite numbers, "
            "texts, true, false, null, and lists, tuples and objects of them"
        )
    return request.batch_size if value == "batch" else value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"inputs: name {name!r}; give text")
    return name


def _resolve_spec(spec: Mapping[str, Json], request: ModelSpec) -> dict[str, Json]:
    unknown = set(spec) - _SPEC_KEYS
    if unknown:
        raise UnknownNameError("key of a tensor in inputs", min(unknown), _SPEC_KEYS)
    sizes = spec["shape"]
    if not isinstance(sizes, list | tuple):
        raise InputError(f"inputs: shape {sizes!r}; give a list of sizes")
    shape: list[Any] = [request.batch_size if size == "batch" else size for size in sizes]
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InputError(f'inputs: size {size!r} in shape {sizes!r}; give a number or "batch"')
    dtype = spec.get("dtype", str(request.dtype).split(MIXED)[0])
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UnknownNameError("dtype of a tensor in inputs", str(dtype), _DTYPES)
    if math.prod(size or 1 for size in shape) * _DTYPES[dtype].itemsize > _MOST_BYTES:
        raise InputError(f"inputs: shape {shape}: it has more bytes than can be addressed")
    resolved: dict[str, Json] = {"shape": shape, "dtype": dtype}
    values = None if spec.get("values") is None else _checked_values(spec["values"])
    if values is not None:
        _check_suits(values, dtype)
        resolved["values"] = values
    if spec.get("layout") is not None:
        resolved["layout"] = _checked_layout(spec["layout"], len(shape))
    elif request.memory_format != MEMORY_FORMATS[0] and _takes_formats(shape, dtype):
        resolved["layout"] = request.memory_format
    return resolved


def _takes_formats(shape: Sequence[int], dtype: str) -> bool:
    return len(shape) in _LAST and bool(_DTYPES[dtype].is_floating_point)  # an image, a video


def _checked_layout(layout: Json, dimensions: int) -> Json:
    if layout == "channels_last":
        return layout
    strides = layout if isinstance(layout, list | tuple) else []
    whole = all(type(stride) is int and 0 <= stride < _MOST_BYTES for stride in strides)
    if not whole or len(strides) != dimensions or not strides:
        raise InputError(
            f'inputs: layout {layout!r}; give "channels_last" or a list of strides, one a dimension'
        )
    return list(strides)


def _checked_values(values: Json) -> Json:
    if values in ("rectified", "mask"):
        return values
    if isinstance(values, Mapping) and len(values) == 1:
        numbers = values.get("range")
        if isinstance(numbers, list | tuple) and len(numbers) == 2:
            low, high = numbers
            if _is_finite(low) and _is_finite(high) and low < high:
                return {"range": [low, high]}
        density = values.get("density")
        if _is_finite(density) and 0 <= density <= 1:
            return {"density": density}
        zeros = values.get("zeros")
        if _is_finite(zeros) and 0 <= zeros <= 1:
            return {"zeros": float(zeros)} if zeros else None
    raise InputError(
        f'inputs: values {values!r}; give "rectified", "mask", {{"range": [low, high]}} with '
        'low < high, {"density": share of true} or {"zeros": share of zeros}'
    )


def _is_finite(value: object) -> TypeGuard[int | float]:
    return _is_number(value) and not isinstance(value, bool)


def _check_suits(values: Json, dtype: str) -> None:
    """Raise an InputError where a tensor of the dtype cannot hold such values."""
    if "density" not in values and _is_floating(dtype):
        return
    if isinstance(values, str) or "zeros" in values:
        what = "a share of zeros is" if "zeros" in values else "they are"
        raise InputError(f"inputs: values {values!r} of {dtype}: {what} of floating point values")
    if ("density" in values) != (dtype == "bool"):
        raise InputError(
            f"inputs: values {values!r} of {dtype}: a density is of bool, a range of numbers"
        )
    if "range" in values:
        low, high = values["range"]
        held = torch.iinfo(_DTYPES[dtype])
        whole = isinstance(low, int) and isinstance(high, int)
        if not whole or low < held.min or high - 1 > held.max:
            raise InputError(
                f"inputs: values {values!r} of {dtype}: give whole numbers from {held.min} to "
                f"{held.max}"
            )


def _is_floating(dtype: str) -> bool:
    return bool(_DTYPES[dtype].is_floating_point or _DTYPES[dtype].is_complex)


def make(value: Json, device: str) -> Any:
    """Return the object that a resolved input describes, its tensors on the device.

    Numbers come from torch's current generator; on "meta" there are none.
    """
    if is_spec(value):
        return _make_tensor(value, device)
    if isinstance(value, Mapping):
        if set(value) == {"tuple"}:
            return tuple(make(item, device) for item in value["tuple"])
        return {name: make(item, device) for name, item in value.items()}
    if isinstance(value, list):
        return [make(item, device) for item in value]
    return value


def _make_tensor(spec: Mapping[str, Json], device: str) -> torch.Tensor:
    shape, dtype, values = spec["shape"], _DTYPES[spec["dtype"]], spec.get("values")
    if device == "meta":
        tensor = torch.empty(shape, dtype=dtype, device="meta")
    elif dtype == torch.bool:
        density = values["density"] if isinstance(values, Mapping) else 1.0
        tensor = torch.rand(shape, device=device) < density
    elif isinstance(values, Mapping) and "zeros" in values:
        kept = torch.rand(shape, device=device) >= values["zeros"]
        tensor = torch.randn(shape, dtype=dtype, device=device) * kept
    elif isinstance(values, Mapping):
        low, high = values["range"]
        if dtype.is_floating_point or dtype.is_complex:
            tensor = (torch.rand(shape, device=device) * (high - low) + low).to(dtype)
        else:
            tensor = torch.randint(low, high, shape, dtype=dtype, device=device)
    elif dtype.is_floating_point or dtype.is_complex:
        tensor = torch.randn(shape, dtype=dtype, device=device)
        if values == "rectified":
            tensor = tensor.relu()
        elif values == "mask":  # added to scores: 0 where kept, the most negative number elsewhere
            tensor = (tensor > 1).to(dtype) * torch.finfo(dtype).min
    else:
        tensor = torch.zeros(shape, dtype=dtype, device=device)
    return in_layout(tensor, spec.get("layout"))


def in_layout(tensor: torch.Tensor, layout: Json) -> torch.Tensor:
    """Return the tensor in a layout: as it is (None), a memory format's, or of the strides given.

    A memory format concerns tensors of four and five dimensions; others stay as they are.
    """
    if layout is None:
        return tensor
    if layout in MEMORY_FORMATS:
        if (last := _LAST.get(tensor.dim())) is None:
            return tensor
        wanted = last if layout == "channels_last" else torch.contiguous_format
        return tensor.contiguous(memory_format=wanted)
    strided = torch.empty_strided(tensor.shape, layout, dtype=tensor.dtype, device=tensor.device)
    return strided.copy_(tensor)


def of_batch(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Return a tensor with another first size: its entries repeated in turn, its layout kept."""
    rows = torch.arange(size, device=tensor.device) % tensor.shape[0]
    if tensor.layout is not torch.strided:
        return tensor.index_select(0, rows)
    order = sorted(range(tensor.dim()), key=lambda axis: tensor.stride(axis) or math.inf)[::-1]
    dense = tensor.permute(order).index_select(order.index(0), rows)
    return dense.permute([order.index(axis) for axis in range(tensor.dim())])


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the same nesting with its tensors changed; one tensor twice stays one."""
    done: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in done:
            done[id(tensor)] = change(tensor)
        return done[id(tensor)]

    return pytree.tree_map_only(torch.Tensor, once, value)


_ATOMS = {type(None), int, float, bool, str, torch.dtype, torch.device, torch.layout}


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of nested tuples, lists, dicts and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if type(value) in _ATOMS:  # most arguments of operators, of which a pass has thousands
        return []
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    if is_dataclass(value) and not isinstance(value, type):
        return [t for each in fields(value) for t in tensors(getattr(value, each.name, None))]
    return []


def numbers(value: Any) -> list[torch.Tensor]:
    """Return the tensors of nested objects as dense ones: of sparse ones what they store.

    Nested tensors are given in parts, quantized ones dequantized.
    """
    return [dense for tensor in tensors(value) for dense in _dense(tensor)]


_STORED = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys(
        (torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")
    ),
    **dict.fromkeys(
        (torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")
    ),
}


def stored(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that hold one: indices and values of a sparse one, else itself."""
    names = _STORED.get(tensor.layout)
    return [tensor] if names is None else [getattr(tensor, name)() for name in names]


def _dense(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.is_nested:
        return [dense for part in tensor.unbind() for dense in _dense(part)]
    if tensor.layout in _STORED:
        return stored(tensor.coalesce() if tensor.is_sparse else tensor)[-1:]
    if tensor.is_mkldnn:
        return [tensor.to_dense()]
    return [tensor.dequantize() if tensor.is_quantized else tensor]


def specs(value: Json) -> list[Mapping[str, Json]]:
    """Return the descriptions of tensors in an input's, in the order of its tensors."""
    if is_spec(value):
        return [value]
    if isinstance(value, Mapping):
        return specs(list(value.values()))
    return [spec for part in value for spec in specs(part)] if isinstance(value, list) else []


def describe(value: Any) -> Json:
    """Return example inputs as data; integer tensors keep their range, boolean ones their density.

    Raises:
        InputError: an input is neither a tensor, a plain value, nor a list, tuple or dict of them.
    """
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if value is None or isinstance(value, str) or _is_number(value):
        return value
    if isinstance(value, float):
        raise InputError(f"an example input is {value}; give a finite number")
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: describe(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, list):
        return [describe(item) for item in value]
    if isinstance(value, Mapping):
        raise InputError(f"an example input is a dict with the keys {list(value)}; give text")
    raise InputError(
        f"an example input is a {type(value).__name__}; "
        "inputs are tensors, plain values, and lists, tuples and dicts of them"
    )


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of four or five dimensions is channels_last, and not contiguous."""
    last = _LAST.get(tensor.dim())
    return not (last is None or tensor.is_contiguous()) and tensor.is_contiguous(memory_format=last)


def _describe_tensor(tensor: torch.Tensor) -> dict[str, Json]:
    spec: dict[str, Json] = {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
    strided = tensor.layout is torch.strided
    if strided and not tensor.is_contiguous():
        spec["layout"] = "channels_last" if is_channels_last(tensor) else list(tensor.stride())
    if tensor.is_meta or not tensor.numel() or not strided:
        return spec
    if tensor.dtype == torch.bool:
        spec["values"] = {"density": round(tensor.float().mean().item(), 3)}
    elif not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        spec["values"] = {"range": [int(tensor.min()), int(tensor.max()) + 1]}
    return spec


def is_index(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds indices or a mask: no floating-point numbers."""
    return not (tensor.is_floating_point() or tensor.is_complex())


@contextmanager
def seeded(device: str) -> Iterator[None]:
    """Draw from a generator of known seed and leave the process's own as it was."""
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(SEED)
        yield
