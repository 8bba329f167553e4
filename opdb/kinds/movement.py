"""Data moved from place to place: copies, joins, repeats."""

from __future__ import annotations

from opdb.kinds.canonical import Arguments, count_dims
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.shape import channels_last_strides, contiguous_strides, strides_of
from opdb.kinds.view import (
    Shape,
    View,
    bool_dtype,
    broadcast,
    input_dtype,
    input_shape,
    is_spec,
    kept_rectified,
    named_dtype,
    never,
    no_flops,
    numel,
    promoted_dtype,
    same_values,
    written_over,
)
from opdb.records import Json


def _joined(view: View) -> list[Shape]:
    shapes = [list(t["shape"]) for t in view.specs("tensors")]
    # torch skips the empty tensor of one dimension
    shapes = [s for s in shapes if s != [0]] or shapes
    dim = int(view["dim"] or 0)
    out = list(shapes[0])
    if out:
        out[dim] = sum(s[dim] for s in shapes)
    return [out]


def _stacked(view: View) -> list[Shape]:
    tensors = view.specs("tensors")
    shape = list(tensors[0]["shape"])
    dim = int(view["dim"] or 0) % (len(shape) + 1)
    return [[*shape[:dim], len(tensors), *shape[dim:]]]


def _padded(view: View) -> list[Shape]:
    shape, pad = view.shape(), view["pad"]
    for axis in range(len(pad) // 2):
        shape[-1 - axis] += int(pad[2 * axis]) + int(pad[2 * axis + 1])
    return [shape]


def _repeated(view: View) -> list[Shape]:
    times = [int(n) for n in view["repeats"] or []]
    shape = [1] * (len(times) - len(view.shape())) + view.shape()
    times = [1] * (len(shape) - len(times)) + times
    return [[n * t for n, t in zip(shape, times, strict=True)]]


def _contiguous_launches(view: View) -> bool:
    spec = view["input"]
    if not is_spec(spec):
        return False
    shape = list(spec["shape"])
    last = "channels_last" in str(view["memory_format"])
    strides = channels_last_strides(shape) if last else contiguous_strides(shape)
    return not _same_strides(spec, strides)


def _same_strides(spec: Json, wanted: list[int]) -> bool:
    pairs = zip(spec["shape"], strides_of(spec), wanted, strict=True)
    return all(size == 1 or have == want for size, have, want in pairs)


def _to_launches(view: View) -> bool:
    if view["copy"] or named_dtype(view) != input_dtype(view):
        return True
    wanted = str(view["memory_format"])
    if view["memory_format"] is None or "preserve" in wanted:
        return False
    # torch goes by the format that a tensor seems to have: one that is no channels_last has none
    return bool(("channels_last" in wanted) != (view["input"].get("layout") == "channels_last"))


def _to(parameters: Arguments, inputs: Arguments) -> None:
    # asking for the dtype that is there asks for nothing
    spec = inputs.get("input")
    if is_spec(spec) and parameters.get("dtype") == {"dtype": spec["dtype"]}:
        del parameters["dtype"]


def _flatten_lists(name: str) -> Canonical:
    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        if isinstance(parameters.get(name), int):
            parameters[name] = [parameters[name]]

    return rewrite


def _indexing(parameters: Arguments, inputs: Arguments) -> None:
    # torch takes None for "ij"
    if parameters.get("indexing", "ij") is None:
        del parameters["indexing"]


def _turned(view: View) -> list[Shape]:
    shape = view.shape()
    if int(view["k"]) % 2:
        first, second = view["dims"]
        shape[first], shape[second] = shape[second], shape[first]
    return [shape]


def _diagonal(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["diagonal"])
    if len(shape) == 1:
        return [[shape[0] + abs(offset)] * 2]
    return [[max(min(shape[0] + min(offset, 0), shape[1] - max(offset, 0)), 0)]]


def _embedded(view: View) -> list[Shape]:
    *batch, length = view.shape()
    places = {int(view[name]) % (len(batch) + 2) for name in ("dim1", "dim2")}
    sizes = iter(batch)
    side = length + abs(int(view["offset"]))
    return [[side if axis in places else next(sizes) for axis in range(len(batch) + 2)]]


def _mesh(view: View) -> list[Shape]:
    sizes = [numel(t["shape"]) for t in view.specs("tensors")]
    if view["indexing"] == "xy":
        sizes[:2] = sizes[1::-1]
    return [sizes] * len(sizes)


_DIM = count_dims(dim=None)
register(
    Kind(
        "cat",
        "tensors, dim=0",
        flops_rule=no_flops,
        shapes_rule=_joined,
        dtype_rule=promoted_dtype,
        values_rule=kept_rectified,
        canonical=count_dims(of="tensors", dim=0),
    ),
    Kind(
        "stack",
        "tensors, dim=0",
        flops_rule=no_flops,
        shapes_rule=_stacked,
        values_rule=kept_rectified,
        canonical=count_dims(extra=1, of="tensors", dim=0),
    ),
    Kind(
        "pad",
        "input, pad, mode='constant', value=None",
        flops_rule=no_flops,
        shapes_rule=_padded,
        dtype_rule=input_dtype,
        values_rule=lambda view: None if view["value"] else kept_rectified(view),
    ),
    Kind(
        "meshgrid",
        "*tensors, indexing='ij'",
        shapes_rule=_mesh,
        launches_rule=never,
        canonical=_indexing,
    ),
    Kind(
        "broadcast_tensors",
        "*tensors",
        shapes_rule=lambda view: (
            [broadcast([list(t["shape"]) for t in view.occurrences])] * len(view.occurrences)
        ),
        launches_rule=never,
    ),
    Kind(
        "contiguous",
        "input, memory_format=None",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        launches_rule=_contiguous_launches,
        values_rule=same_values,
    ),
    Kind(
        "clone",
        "input, *, memory_format=None",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        values_rule=same_values,
    ),
    Kind(
        "to",
        "input, *, dtype=None, copy=False, memory_format=None",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=named_dtype,
        launches_rule=_to_launches,
        values_rule=lambda view: same_values(view) if view["dtype"] is None else None,
        canonical=_to,
    ),
    Kind(
        "copy",
        "input, src",
        flops_rule=no_flops,
        bytes_rule=written_over,
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        mutates=("input",),
    ),
    Kind(
        "roll",
        "input, shifts, dims=()",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        values_rule=same_values,
        canonical=_flatten_lists("shifts"),
    ),
    Kind(
        "flip",
        "input, *dims",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        values_rule=same_values,
    ),
    Kind(
        "repeat",
        "input, *repeats",
        flops_rule=no_flops,
        shapes_rule=_repeated,
        values_rule=same_values,
    ),
    Kind("tile", "input, *repeats", flops_rule=no_flops, shapes_rule=_repeated),
    Kind(
        "repeat_interleave",
        "input, repeats, dim=None, *, output_size=None",
        flops_rule=no_flops,
        shapes_rule=lambda view: _interleaved(view),
        dtype_rule=input_dtype,
        canonical=_DIM,
    ),
    Kind("triu", "input, diagonal=0", flops_rule=no_flops, mutates=("input",)),
    Kind("tril", "input, diagonal=0", flops_rule=no_flops, mutates=("input",)),
    Kind("rot90", "input, k=1, dims=(0, 1)", flops_rule=no_flops, shapes_rule=_turned),
    Kind("diag", "input, diagonal=0", flops_rule=no_flops, shapes_rule=_diagonal),
    Kind(
        "diag_embed",
        "input, offset=0, dim1=-2, dim2=-1",
        flops_rule=no_flops,
        shapes_rule=_embedded,
    ),
    Kind("item", "input", flops_rule=no_flops, shapes_rule=lambda view: [], synchronises=True),
    Kind("tolist", "input", flops_rule=no_flops, shapes_rule=lambda view: [], synchronises=True),
    Kind(
        "contains",
        "input, element",
        shapes_rule=lambda view: [],
        dtype_rule=bool_dtype,
        synchronises=True,
    ),
    Kind(
        "equal",
        "input, other",
        shapes_rule=lambda view: [],
        dtype_rule=bool_dtype,
        synchronises=True,
    ),
    Kind(
        "allclose",
        "input, other, rtol=1e-05, atol=1e-08, equal_nan=False",
        shapes_rule=lambda view: [],
        dtype_rule=bool_dtype,
        synchronises=True,
    ),
)


def _interleaved(view: View) -> list[Shape]:
    shape, times, dim = view.shape(), view["repeats"], view["dim"]
    factor = times if isinstance(times, int) else 1
    if dim is None:
        return [[numel(shape) * factor]]
    shape[int(dim)] = int(view["output_size"] or shape[int(dim)] * factor)
    return [shape]
