"""Data read from and written to places that indices name."""

from __future__ import annotations

from opdb.kinds.canonical import count_dims
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    broadcast,
    index_dtype,
    input_dtype,
    input_shape,
    is_spec,
    item_bytes,
    no_flops,
    numel,
    outputs_twice,
    same_values,
    spec_bytes,
)
from opdb.records import Json


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


def _assigned_bytes(view: View) -> int:
    # the value is read and the place that it goes to written; the rest of the input stays
    value = sum(spec_bytes(t) for t in view.specs("value"))
    return value + numel(indexed_shape(view)[0]) * item_bytes(view.dtype())


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


_DIM = count_dims(dim=None)
register(
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
        bytes_rule=_assigned_bytes,
        shapes_rule=lambda view: [],
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
    Kind("masked_scatter", "input, mask, source", shapes_rule=input_shape, mutates=("input",)),
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
