"""Data read from and written to places that indices name, embeddings too."""

from __future__ import annotations

from functools import partial

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR_OR_VIEW,
    NO_FUNCTION,
    ONCE,
    count_dims,
    elementwise,
    goes_on,
    moved,
)
from opdb.kinds.registry import register
from opdb.kinds.view import Shape, View
from opdb.records import Json


def _index_selected(view: View) -> list[Shape]:
    return [view.resized("dim", v.numel(view.shape("index")))]


def _sliced(size: int, item: Json) -> int:
    start, stop, step = (n if isinstance(n, int) else None for n in item["slice"])
    return len(range(size)[slice(start, stop, step)])


def _indexed(view: View, name: str) -> Shape:
    """Return a shape of as many elements as input[index] has; a mask is taken to keep all."""
    shape, items = view.shape(), view[name] or []
    taken = sum(_dimensions(i) for i in items)
    out: Shape = []
    fancy: list[Shape] = []
    axis = 0
    for item in items:
        if isinstance(item, dict) and "ellipsis" in item:
            skipped = len(shape) - taken
            out += shape[axis : axis + skipped]
            axis += skipped
        elif isinstance(item, dict) and "slice" in item:
            out.append(_sliced(shape[axis], item))
            axis += 1
        else:
            fancy.append(_index_extent(item))
            axis += _dimensions(item)
    return [*out, *v.broadcast(fancy), *shape[axis:]]


def _assigned_bytes(view: View) -> int:
    # the value is read and the place that it goes to written; the rest of the input stays
    value = sum(v.spec_bytes(t) for t in view.specs("value"))
    return value + v.numel(_indexed(view, "index")) * v.item_bytes(view.dtype())


def _places(view: View) -> int:
    name = view.configuration.kind
    if name == "index_put":
        return v.numel(_indexed(view, "indices"))
    return v.numel(view.shape("index") if name.startswith("scatter") else _index_selected(view)[0])


def _adds(view: View) -> bool:
    joined = view.configuration.kind in ("index_add", "scatter_add")
    return joined or bool(view["accumulate"] or view["reduce"])


def _put_bytes(view: View) -> int:
    """Count what is given read and its places written, in place; else the whole input copied."""
    if not view.inplace:
        return v.inputs_and_outputs(view)
    given = v.inputs_and_outputs(view) - view.output_bytes - v.spec_bytes(view["input"])
    return given + (2 if _adds(view) else 1) * _places(view) * v.item_bytes(view.dtype())


def _dimensions(item: Json) -> int:
    if item is None or isinstance(item, bool) or (isinstance(item, dict) and "ellipsis" in item):
        return 0
    return len(item["shape"]) if v.is_spec(item) and item["dtype"] == "bool" else 1


def _index_extent(item: Json) -> Shape:
    if v.is_spec(item):
        shape = list(item["shape"])
        return [v.numel(shape)] if item["dtype"] == "bool" else shape
    return [len(item)] if isinstance(item, list) else []


def _by_mask(view: View) -> bool:
    """Say that a mask is among the indices: the host waits for the number of its places.

    Not where they are set to one plain number: torch fills them without counting.
    """
    masks = any(t["dtype"] == "bool" for name in _INDICES for t in view.specs(name))
    return masks and not isinstance(view["value"], int | float)


def _dim_size(view: View, name: str) -> int | None:
    """Bound indices by the size of the dimension that they point into."""
    if name not in _INDICES:
        return None
    shape, dim = view.shape(), view["dim"]
    return int(shape[int(dim)]) if dim is not None and shape else v.numel(shape)


def _least_size(view: View, name: str) -> int | None:
    """Bound indices by the smallest dimension: which one an index points into is not looked up."""
    return max(min(view.shape(), default=1), 1) if name in _INDICES else None


_INDICES = ("index", "indices")
_DIM = count_dims(dim=None)

# Elements read from where indices say, and no others.
gathered = partial(
    moved, bytes_rule=v.outputs_twice, dtype_rule=v.input_dtype, bound_rule=_dim_size
)

gathered_alike = partial(gathered, shapes_rule=lambda view: [view.shape("index")])

# Elements written to where indices say.
put = partial(
    moved,
    # one operation for each place where something is added
    flops_rule=lambda view: _places(view) if _adds(view) else 0,
    bytes_rule=_put_bytes,
    shapes_rule=v.input_shape,
    dtype_rule=v.input_dtype,
    backward=ONCE,
    bound_rule=_dim_size,
    canonical=_DIM,
    mutates=("input",),
)

# Results of a size that the data decide: the host waits for it.
found = partial(moved, dtype_rule=v.index_dtype, backward=CONSTANT, waits_rule=v.always)

register(
    gathered(
        "getitem",
        "input, index",
        shapes_rule=lambda view: [_indexed(view, "index")],
        backward=LINEAR_OR_VIEW,
        nonzero_rule=goes_on,
        launches_rule=lambda view: any(
            v.is_spec(i) or isinstance(i, list | bool) for i in view["index"] or []
        ),
        bound_rule=_least_size,
        waits_rule=_by_mask,
        values_rule=v.same_values,
        functions=NO_FUNCTION,
    ),
    put(
        "setitem",
        "input, index, value",
        flops_rule=v.no_flops,
        bytes_rule=_assigned_bytes,
        shapes_rule=v.no_output,
        backward=CONSTANT,
        bound_rule=_least_size,
        waits_rule=_by_mask,
        canonical=None,
        functions=NO_FUNCTION,
    ),
    gathered(
        "index_select",
        "input, dim, index",
        shapes_rule=_index_selected,
        nonzero_rule=goes_on,
        values_rule=v.same_values,
        canonical=_DIM,
    ),
    gathered_alike("gather", "input, dim, index", canonical=_DIM),
    gathered(
        "take_along_dim",
        "input, indices, dim=None",
        shapes_rule=lambda view: [view.shape("indices")],
    ),
    gathered_alike("take", "input, index"),
    moved(
        "masked_select",
        "input, mask",
        shapes_rule=lambda view: [[v.numel(view.shape())]],
        dtype_rule=v.input_dtype,
        waits_rule=v.always,
    ),
    elementwise("masked_scatter", "input, mask, source", shapes_rule=v.input_shape),
    found(
        "nonzero",
        "input, *, as_tuple=False",
        shapes_rule=lambda view: [[v.numel(view.shape()), len(view.shape())]],
        functions="torch.nonzero Tensor.nonzero torch.argwhere Tensor.argwhere",
    ),
    found(
        "unique",
        "input, sorted=True, return_inverse=False, return_counts=False, dim=None",
        shapes_rule=v.input_shape,
        dtype_rule=v.promoted_dtype,
        backward=ONCE,
    ),
    put("scatter", "input, dim, index, src, *, reduce=None"),
    put("scatter_add", "input, dim, index, src"),
    put("scatter_reduce", "input, dim, index, src, reduce, *, include_self=True"),
    put("index_add", "input, dim, index, source, *, alpha=1"),
    put("index_copy", "input, dim, index, source"),
    put("index_fill", "input, dim, index, value"),
    put(
        "index_put",
        "input, indices, values, accumulate=False",
        bound_rule=_least_size,
        waits_rule=_by_mask,
    ),
)


# embeddings


def _table_dtype(view: View) -> str:
    return view.dtype("weight")


def _embedding_bytes(view: View) -> int:
    # a row is read for each index, never more than the table
    rows = view.output_elements * v.item_bytes(view.output_dtype)
    return v.spec_bytes(view["input"]) + min(rows, v.spec_bytes(view["weight"])) + rows


def _rows(view: View, name: str) -> int | None:
    """Bound indices by the table's rows; every bag of a measured call begins at the first index."""
    return {"input": int(view.shape("weight")[0]), "offsets": 1}.get(name)


def _classes(view: View, name: str) -> int | None:
    count = int(view["num_classes"])
    return count if count > 0 else None


def _bag_shape(view: View) -> list[Shape]:
    bags = view.shape()[0] if view["offsets"] is None else view.shape("offsets")[0]
    last = view["offsets"] is not None and view["include_last_offset"]
    return [[bags - bool(last), view.shape("weight")[-1]]]


def _bag_flops(view: View) -> int:
    """Count an addition for each element of each row, and a product where rows are weighted."""
    elements = v.numel(view.shape()) * view.shape("weight")[-1]
    return elements if view["per_sample_weights"] is None else 2 * elements


def _bag_bytes(view: View) -> int:
    # as an embedding's, and a row is written for each bag
    rows = v.numel(view.shape()) * view.shape("weight")[-1] * v.item_bytes(view.dtype("weight"))
    table = v.spec_bytes(view["weight"])
    return v.inputs_and_outputs(view) - table + min(rows, table)


register(
    moved(
        "embedding",
        "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, "
        "scale_grad_by_freq=False, sparse=False",
        bytes_rule=_embedding_bytes,
        shapes_rule=lambda view: [[*view.shape(), view.shape("weight")[-1]]],
        dtype_rule=_table_dtype,
        bound_rule=_rows,
        functions="F.embedding torch.embedding(weight, input, padding_idx=None, "
        "scale_grad_by_freq=False, sparse=False)",
    ),
    moved(
        "embedding_bag",
        "input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
        "mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, "
        "padding_idx=None",
        flops_rule=_bag_flops,
        bytes_rule=_bag_bytes,
        shapes_rule=_bag_shape,
        dtype_rule=_table_dtype,
        bound_rule=_rows,
        functions="F.embedding_bag",
    ),
    moved(
        "one_hot",
        "input, num_classes=-1",
        shapes_rule=lambda view: [[*view.shape(), max(int(view["num_classes"]), 1)]],
        dtype_rule=v.index_dtype,
        backward=CONSTANT,
        bound_rule=_classes,
        functions="F.one_hot",
    ),
)
