"""Model inputs as data: substitute the batch, make the tensors, describe given ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from math import prod, sqrt
from typing import Any, TypeGuard

import torch
from torch.utils import _pytree as pytree

from opdb.errors import InputError, UnknownNameError, UnsupportedError
from opdb.kinds.view import strides_of
from opdb.records import Json
from opdb.spec import MEMORY_FORMATS, MIXED, ModelSpec

_DTYPES = {str(d).removeprefix("torch."): d for d in vars(torch).values() if type(d) is torch.dtype}
_OF_INPUTS = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
)
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions
_SPEC_KEYS = {"shape", "dtype", "layout", "values"}
_MOST_BYTES = 2**63 - 1
SEED = 0
"""Seeds random weights and inputs, so that two loads of one request give the same numbers."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    if name not in _DTYPES:
        raise UnsupportedError(f"torch {torch.__version__} has no dtype {name!r}")
    return _DTYPES[name]


def is_spec(value: Json) -> bool:
    return isinstance(value, Mapping) and "shape" in value


def resolve(inputs: Mapping[str, Json], request: ModelSpec) -> dict[str, Json]:
    """Return inputs as data with the request's batch, dtype and memory format spelled out."""
    unknown = set(inputs) - {"args", "kwargs"}
    if unknown:
        raise UnknownNameError("key of inputs", min(unknown), ("args", "kwargs"))
    args, kwargs = inputs.get("args", []), inputs.get("kwargs", {})
    if not isinstance(args, Sequence) or isinstance(args, str) or not isinstance(kwargs, Mapping):
        raise InputError("inputs: args must be a list and kwargs an object")
    named = {name: _resolve(value, request) for name, value in kwargs.items()}
    return {"args": [_resolve(value, request) for value in args], "kwargs": named}


def _resolve(value: Json, request: ModelSpec) -> Json:
    if is_spec(value):
        return _resolve_spec(value, request)
    if isinstance(value, Mapping):
        if set(value) == {"tuple"} and not isinstance(value["tuple"], list | tuple):
            raise InputError(f"inputs: tuple {value['tuple']!r}; give a list of what is in it")
        return {name: _resolve(item, request) for name, item in value.items()}
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
    if not isinstance(dtype, str) or dtype not in _OF_INPUTS:
        raise UnknownNameError("dtype of a tensor in inputs", str(dtype), _OF_INPUTS)
    if prod(size or 1 for size in shape) * _DTYPES[dtype].itemsize > _MOST_BYTES:
        raise InputError(f"inputs: shape {shape}: it has more bytes than can be addressed")
    resolved: dict[str, Json] = {"shape": shape, "dtype": dtype}
    values = None if spec.get("values") is None else _checked_values(spec["values"], dtype)
    if values is not None:
        resolved["values"] = values
    if spec.get("layout") is not None:
        resolved["layout"] = _checked_layout(spec["layout"], len(shape))
    image = len(shape) in _LAST and _DTYPES[dtype].is_floating_point  # or a video
    if "layout" not in resolved and image and request.memory_format != MEMORY_FORMATS[0]:
        resolved["layout"] = request.memory_format
    return resolved


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


def _checked_values(values: Json, dtype: str) -> Json:
    held, single = _DTYPES[dtype], isinstance(values, Mapping) and len(values) == 1
    name, given = next(iter(values.items())) if single else (str(values), None)
    share = _is_finite(given) and 0 <= given <= 1
    allowed = {
        "rectified": held.is_floating_point and not single,
        "mask": held.is_floating_point and not single,
        "range": _is_range(given, held),
        "density": dtype == "bool" and share,
        "zeros": not is_index(held) and share,
    }
    if not allowed.get(name):
        raise InputError(
            f'inputs: values {values!r} of {dtype}; give {{"range": [low, high]}} with low < high, '
            'of bool {"density": share of true}, of floats "rectified", "mask" or {"zeros": share}'
        )
    if name == "zeros":
        return {"zeros": float(given)} if given else None
    return values


def _is_finite(value: object) -> TypeGuard[int | float]:
    return _is_number(value) and not isinstance(value, bool)


def _is_range(given: object, dtype: torch.dtype) -> bool:
    """Return whether a dtype has the numbers from the first of two to below the second."""
    if not isinstance(given, list | tuple) or len(given) != 2 or not all(map(_is_finite, given)):
        return False
    low, high = given
    if low >= high or not is_index(dtype):
        return bool(low < high)
    if dtype is torch.bool or not (isinstance(low, int) and isinstance(high, int)):
        return False
    return torch.iinfo(dtype).min <= low and high - 1 <= torch.iinfo(dtype).max


def make(value: Json, device: str) -> Any:
    """Numbers come from torch's current generator; on "meta" there are none."""
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
    """Make an input; truths are true and whole numbers 0 where nothing else is said."""
    if is_index(_DTYPES[spec["dtype"]]) and "values" not in spec:
        usual = {"density": 1.0} if spec["dtype"] == "bool" else {"range": [0, 1]}
        spec = {**spec, "values": usual}
    return in_layout(_filled(spec, spec["shape"], device), spec.get("layout"))


def materialize(
    spec: Json, device: torch.device | str = "cpu", generator: torch.Generator | None = None
) -> torch.Tensor:
    """Make a tensor by its spec: shape, dtype, strides, value class; weights are small."""
    shape, strides = list(spec["shape"]), strides_of(spec)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
    size = 0 if 0 in shape else reach
    return torch.as_strided(_filled(spec, [size], device, generator), shape, strides)


def _filled(
    spec: Json,
    size: Sequence[int],
    device: torch.device | str,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    dtype, values = dtype_of(spec["dtype"]), spec.get("values")
    if dtype is torch.bool:
        density = values.get("density", 0.5) if isinstance(values, dict) else 0.5
        density = 0.9 if values == "mask" else density
        return torch.rand(size, device=device, generator=generator) < density
    if is_index(dtype):
        low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, 2)
        high = max(int(high), int(low) + 1)
        kept = torch.randint(int(low), high, size, device=device, generator=generator)
        return kept.to(dtype)
    direct = dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    made = dtype if direct or dtype.is_complex else torch.float32
    noise = torch.empty(size, dtype=made, device=device)
    if torch.device(device).type != "meta":  # which draws nothing, in 1 ms of Python
        noise.normal_(generator=generator)
    if isinstance(values, dict) and "zeros" in values and spec.get("role") != "weight":
        return _with_zeros(noise, values["zeros"], generator).to(dtype)
    if values is None and spec["dtype"].startswith("float8"):  # scaled numbers fill their range
        largest = torch.finfo(dtype).max
        return noise.mul_(largest / 4).clamp_(-largest, largest).to(dtype)
    return _shaped(noise, spec, values).to(dtype)


def _with_zeros(
    noise: torch.Tensor, share: Json, generator: torch.Generator | None
) -> torch.Tensor:
    """Set a share of the values to zero, each by a draw of its own; the others stay normal."""
    number = isinstance(share, int | float) and not isinstance(share, bool)
    if not number or not 0 <= share <= 1:
        raise UnsupportedError(f"a share of zeros is from 0 to 1, not {share!r}")
    kept = torch.empty_like(noise, dtype=torch.bool).bernoulli_(1 - share, generator=generator)
    return noise.mul_(kept)


def _shaped(noise: torch.Tensor, spec: Json, values: Json) -> torch.Tensor:
    if spec.get("role") == "weight" and len(spec["shape"]) > 1:
        return noise.div_(sqrt(max(prod(spec["shape"][1:]), 1)))
    if values is None:
        return noise
    if values == "rectified":
        # a handful of numbers could all be negative
        return noise.relu_() if noise.numel() > 16 else noise.abs_()
    if values == "mask":
        # an additive mask: 0 where kept, the most negative number elsewhere
        return noise.gt(1.28).to(noise.dtype).mul_(torch.finfo(noise.dtype).min)
    if isinstance(values, dict) and "range" in values:
        low, high = values["range"]
        return noise.sigmoid_().mul_(high - low).add_(low)
    raise UnsupportedError(f"unknown value class {values!r}")


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
    """Dense ones: what sparse ones store, nested ones in parts, quantized ones dequantized."""
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
    """Return example inputs as data: integers keep their range, booleans their density."""
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if value is None or isinstance(value, str) or _is_number(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: describe(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, list):
        return [describe(item) for item in value]
    raise InputError(
        f"an example input is {value!r:.60} ({type(value).__name__}); inputs are tensors, finite "
        "numbers, texts, true, false, none, and lists, tuples and dicts (by text) of them"
    )


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of four or five dimensions is channels_last, and not contiguous."""
    last = _LAST.get(tensor.dim())
    return not (last is None or tensor.is_contiguous()) and tensor.is_contiguous(memory_format=last)


def _describe_tensor(tensor: torch.Tensor) -> dict[str, Json]:
    spec: dict[str, Json] = {
        "shape": list(tensor.shape),
        "dtype": dtype_name(tensor.dtype),
    }
    strided = tensor.layout is torch.strided
    if strided and not tensor.is_contiguous():
        spec["layout"] = "channels_last" if is_channels_last(tensor) else list(tensor.stride())
    if tensor.is_meta or not tensor.numel() or not strided:
        return spec
    if tensor.dtype == torch.bool:
        spec["values"] = {"density": round(tensor.float().mean().item(), 3)}
    elif is_index(tensor.dtype):
        spec["values"] = {"range": [int(tensor.min()), int(tensor.max()) + 1]}
    return spec


def is_index(dtype: torch.dtype) -> bool:
    """Return whether a dtype is that of indices or masks: no floating-point numbers."""
    return not (dtype.is_floating_point or dtype.is_complex)


@contextmanager
def seeded(device: str) -> Iterator[None]:
    """Draw from a generator of known seed and leave the process's own as it was."""
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(SEED)
        yield
