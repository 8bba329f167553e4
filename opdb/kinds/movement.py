"""Data moved from place to place: copies, joins, indexing."""

from __future__ import annotations

from opdb.kinds.canonical import Arguments, count_dims
from opdb.kinds.registry import Kind, register
from opdb.kinds.shape import contiguous_strides, strides_of
from opdb.kinds.view import (
    Shape,
    View,
    bool_dtype,
    broadcast,
    index_dtype,
    input_dtype,
    input_shape,
    is_spec,
    kept_rectified,
    named_dtype,
    never,
    no_flops,
    numel,
    outputs_twice,
    promoted_dtype,
    same_values,
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


def _index_shape(view: View) -> list[Shape]:
    return [view.shape("index")]


def _index_selected(view: View) -> list[Shape]:
    shape = view.shape()
    shape[int(view["dim"])] = numel(view.shape("index"))
    return [shape]


def _sliced(size: int, item: Json) -> int:
    start, stop, step = (n if isinstance(n, int) else None for n in item["slice"])
    return len(range(size)[slice(start, stop, step)])


def indexed_shape(view: View) -> list[Shape]:
    """Give the shape of input[index]; a boolean index is taken to keep everything."""
    shape, items = view.shape(), view["index"] or []
    taken = sum(_dimensions(i) for i in items)
    out: Shape = []
    fancy: list[Shape] = []
    place = 0
    axis = 0
    for item in items:
        if item is None:
            out.append(1)
        elif isinstance(item, dict) and "ellipsis" in item:
            skipped = len(shape) - taken
            out += shape[axis : axis + skipped]
            axis += skipped
        elif isinstance(item, dict) and "slice" in item:
            out.append(_sliced(shape[axis], item))
            axis += 1
        elif isinstance(item, int) and not isinstance(item, bool):
            axis += 1
        else:
            place = place if fancy else len(out)
            fancy.append(_index_extent(item))
            axis += _dimensions(item)
    out += shape[axis:]
    return [[*out[:place], *broadcast(fancy), *out[place:]] if fancy else out]


def _dimensions(item: Json) -> int:
    if item is None or isinstance(item, bool) or (isinstance(item, dict) and "ellipsis" in item):
        return 0
    return len(item["shape"]) if is_spec(item) and item["dtype"] == "bool" else 1


def _index_extent(item: Json) -> Shape:
    if is_spec(item):
        shape = list(item["shape"])
        return [numel(shape)] if item["dtype"] == "bool" else shape
    return [len(item)] if isinstance(item, list) else []


def _indexing_launches(view: View) -> bool:
    return any(is_spec(i) or isinstance(i, list | bool) for i in view["index"] or [])


def _contiguous_launches(view: View) -> bool:
    spec = view["input"]
    if not is_spec(spec):
        return False
    wanted = view["memory_format"]
    if wanted is not None and "channels_last" in str(wanted):
        return bool(spec.get("layout") != "channels_last")
    return not _same_strides(spec, contiguous_strides(list(spec["shape"])))


def _same_strides(spec: Json, wanted: list[int]) -> bool:
    pairs = zip(spec["shape"], strides_of(spec), wanted, strict=True)
    return all(size == 1 or have == want for size, have, want in pairs)


def _to_launches(view: View) -> bool:
    if view["copy"] or named_dtype(view) != input_dtype(view):
        return True
    return view["memory_format"] is not None and _contiguous_launches(view)


def _to(parameters: Arguments, inputs: Arguments) -> None:
    # asking for the dtype that is there asks for nothing
    spec = inputs.get("input")
    if is_spec(spec) and parameters.get("dtype") == {"dtype": spec["dtype"]}:
        del parameters["dtype"]


def _flatten_lists(name: str):  # type: ignore[no-untyped-def]
    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        if isinstance(parameters.get(name), int):
            parameters[name] = [parameters[name]]

    return rewrite


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
    Kind("meshgrid", "*tensors, indexing='ij'", shapes_rule=_mesh, launches_rule=never),
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
    Kind("copy", "input, src", flops_rule=no_flops, shapes_rule=input_shape, mutates=("input",)),
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
    Kind(
        "getitem",
        "input, index",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=indexed_shape,
        dtype_rule=input_dtype,
        launches_rule=_indexing_launches,
        values_rule=same_values,
    ),
    Kind(
        "setitem",
        "input, index, value",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=indexed_shape,
        dtype_rule=input_dtype,
        mutates=("input",),
    ),
    Kind(
        "index_put",
        "input, indices, values, accumulate=False",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        mutates=("input",),
    ),
    Kind(
        "index_select",
        "input, dim, index",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=_index_selected,
        dtype_rule=input_dtype,
        values_rule=same_values,
        canonical=_DIM,
    ),
    Kind(
        "gather",
        "input, dim, index",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=_index_shape,
        dtype_rule=input_dtype,
        canonical=_DIM,
    ),
    Kind(
        "take_along_dim",
        "input, indices, dim=None",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=lambda view: [view.shape("indices")],
        dtype_rule=input_dtype,
    ),
    Kind(
        "take",
        "input, index",
        flops_rule=no_flops,
        bytes_rule=outputs_twice,
        shapes_rule=_index_shape,
        dtype_rule=input_dtype,
    ),
    Kind(
        "masked_select",
        "input, mask",
        flops_rule=no_flops,
        shapes_rule=lambda view: [[numel(view.shape())]],
        dtype_rule=input_dtype,
        synchronises=True,
    ),
    Kind(
        "masked_scatter", "input, mask, source", shapes_rule=input_shape, mutates=("input",)
    ),
    Kind("triu", "input, diagonal=0", flops_rule=no_flops, mutates=("input",)),
    Kind("tril", "input, diagonal=0", flops_rule=no_flops, mutates=("input",)),
    Kind("rot90", "input, k=1, dims=(0, 1)", flops_rule=no_flops, shapes_rule=input_shape),
    Kind("diag", "input, diagonal=0", flops_rule=no_flops, shapes_rule=input_shape),
    Kind(
        "diag_embed",
        "input, offset=0, dim1=-2, dim2=-1",
        flops_rule=no_flops,
        shapes_rule=lambda view: [[*view.shape(), view.shape()[-1]]],
    ),
    Kind(
        "nonzero",
        "input, *, as_tuple=False",
        flops_rule=no_flops,
        shapes_rule=lambda view: [[numel(view.shape()), len(view.shape())]],
        dtype_rule=index_dtype,
        synchronises=True,
    ),
    Kind(
        "unique",
        "input, sorted=True, return_inverse=False, return_counts=False, dim=None",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        synchronises=True,
    ),
    Kind("item", "input", flops_rule=no_flops, shapes_rule=lambda view: [], synchronises=True),
    Kind("tolist", "input", flops_rule=no_flops, shapes_rule=lambda view: [], synchronises=True),
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
for _name, _source in (("scatter", "src"), ("scatter_add", "src")):
    _more = ", *, reduce=None" if _name == "scatter" else ""
    register(
        Kind(
            _name,
            f"input, dim, index, {_source}{_more}",
            flops_rule=no_flops,
            shapes_rule=input_shape,
            dtype_rule=input_dtype,
            canonical=_DIM,
            mutates=("input",),
        )
    )
register(
    Kind(
        "scatter_reduce",
        "input, dim, index, src, reduce, *, include_self=True",
        shapes_rule=input_shape,
        canonical=_DIM,
        mutates=("input",),
    ),
    Kind(
        "index_add",
        "input, dim, index, source, *, alpha=1",
        shapes_rule=input_shape,
        canonical=_DIM,
        mutates=("input",),
    ),
    Kind(
        "index_copy",
        "input, dim, index, source",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        canonical=_DIM,
        mutates=("input",),
    ),
    Kind(
        "index_fill",
        "input, dim, index, value",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        canonical=_DIM,
        mutates=("input",),
    ),
)


def _interleaved(view: View) -> list[Shape]:
    shape, times, dim = view.shape(), view["repeats"], view["dim"]
    factor = times if isinstance(times, int) else 1
    if dim is None:
        return [[numel(shape) * factor]]
    shape[int(dim)] = int(view["output_size"] or shape[int(dim)] * factor)
    return [shape]
