"""Reductions, scans, sorting and searching."""

from __future__ import annotations

from opdb.kinds.canonical import count_dims
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    bool_dtype,
    broadcast,
    index_dtype,
    input_dtype,
    input_shape,
    named_dtype,
    no_flops,
    numel,
    one_flop_an_input,
    summed_dtype,
)


def reduced_shape(view: View) -> list[Shape]:
    """Give the input's shape without the reduced dimensions, or with 1 in their place."""
    shape = view.shape()
    dims = view["dim"]
    if dims is None or dims == []:
        return [[1] * len(shape) if view["keepdim"] else []]
    gone = {d % max(len(shape), 1) for d in (dims if isinstance(dims, list) else [dims])}
    if view["keepdim"]:
        return [[1 if axis in gone else n for axis, n in enumerate(shape)]]
    return [[n for axis, n in enumerate(shape) if axis not in gone]]


def _with_indices(view: View) -> list[Shape]:
    shapes = reduced_shape(view)
    return shapes * 2 if view["dim"] is not None else shapes


def _top_shape(view: View) -> list[Shape]:
    shape = view.shape()
    shape[int(view["dim"])] = int(view["k"])
    return [shape, shape]


def _pair(view: View) -> list[Shape]:
    return [view.shape(), view.shape()]


_DIMS = count_dims(dim=None)
_WIDE = ("sum", "prod", "nansum")
_REDUCTIONS = {
    "sum": "input, dim=None, keepdim=False, *, dtype=None",
    "mean": "input, dim=None, keepdim=False, *, dtype=None",
    "prod": "input, dim=None, keepdim=False, *, dtype=None",
    "nansum": "input, dim=None, keepdim=False, *, dtype=None",
    "nanmean": "input, dim=None, keepdim=False, *, dtype=None",
    "amax": "input, dim=(), keepdim=False",
    "amin": "input, dim=(), keepdim=False",
    "logsumexp": "input, dim, keepdim=False",
    "vector_norm": "input, ord=2, dim=None, keepdim=False, *, dtype=None",
    "norm": "input, p='fro', dim=None, keepdim=False, *, dtype=None",
}
for _name, _signature in _REDUCTIONS.items():
    register(
        Kind(
            _name,
            _signature,
            flops_rule=one_flop_an_input,
            shapes_rule=reduced_shape,
            dtype_rule=summed_dtype if _name in _WIDE else named_dtype,
            canonical=_DIMS,
        )
    )
for _name in ("std", "var"):
    register(
        Kind(
            _name,
            "input, dim=None, *, correction=1, keepdim=False",
            flops_rule=lambda view: 4 * numel(view.shape()),
            shapes_rule=reduced_shape,
            dtype_rule=input_dtype,
            canonical=_DIMS,
        ),
        Kind(
            f"{_name}_mean",
            "input, dim=None, *, correction=1, keepdim=False",
            flops_rule=lambda view: 4 * numel(view.shape()),
            shapes_rule=lambda view: reduced_shape(view) * 2,
            dtype_rule=input_dtype,
            canonical=_DIMS,
        ),
    )
for _name in ("argmax", "argmin"):
    register(
        Kind(
            _name,
            "input, dim=None, keepdim=False",
            flops_rule=one_flop_an_input,
            shapes_rule=reduced_shape,
            dtype_rule=index_dtype,
            canonical=_DIMS,
        )
    )
for _name in ("any", "all"):
    register(
        Kind(
            _name,
            "input, dim=None, keepdim=False",
            flops_rule=no_flops,
            shapes_rule=reduced_shape,
            dtype_rule=bool_dtype,
            canonical=_DIMS,
        )
    )
for _name in ("max", "min", "median", "mode"):
    register(
        Kind(
            _name,
            "input, dim=None, keepdim=False",
            flops_rule=one_flop_an_input,
            shapes_rule=_with_indices,
            dtype_rule=input_dtype,
            then_indices=True,
            canonical=_DIMS,
        )
    )
for _name in ("cumsum", "cumprod", "logcumsumexp"):
    register(
        Kind(
            _name,
            "input, dim, *, dtype=None",
            shapes_rule=input_shape,
            dtype_rule=summed_dtype,
            canonical=_DIMS,
            mutates=("input",),
        )
    )
for _name in ("cummax", "cummin"):
    register(Kind(_name, "input, dim", shapes_rule=_pair, then_indices=True, canonical=_DIMS))

register(
    Kind(
        "topk",
        "input, k, dim=-1, largest=True, sorted=True",
        flops_rule=one_flop_an_input,
        shapes_rule=_top_shape,
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    Kind(
        "sort",
        "input, dim=-1, descending=False, *, stable=False",
        flops_rule=no_flops,
        shapes_rule=_pair,
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    Kind(
        "argsort",
        "input, dim=-1, descending=False, *, stable=False",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=index_dtype,
        canonical=count_dims(dim=-1),
    ),
    Kind(
        "searchsorted",
        "sorted_sequence, input, *, out_int32=False, right=False, side=None",
        flops_rule=no_flops,
        shapes_rule=lambda view: [view.shape()],
        dtype_rule=index_dtype,
    ),
    Kind(
        "bucketize",
        "input, boundaries, *, out_int32=False, right=False",
        flops_rule=no_flops,
        shapes_rule=input_shape,
        dtype_rule=index_dtype,
    ),
    Kind(
        "cdist",
        "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'",
        flops_rule=lambda view: 3 * view.output_elements * view.shape("x1")[-1],
        shapes_rule=lambda view: [
            [*view.shape("x1")[:-2], view.shape("x1")[-2], view.shape("x2")[-2]]
        ],
        settings=("tf32_matmul",),
        raised=True,
    ),
    Kind(
        "cosine_similarity",
        "x1, x2, dim=1, eps=1e-08",
        flops_rule=lambda view: 6 * numel(_both(view)),
        shapes_rule=lambda view: [_without(_both(view), int(view["dim"]))],
    ),
    Kind(
        "pairwise_distance",
        "x1, x2, p=2.0, eps=1e-06, keepdim=False",
        flops_rule=lambda view: 4 * numel(_both(view)),
        shapes_rule=lambda view: [_both(view)[:-1] + ([1] if view["keepdim"] else [])],
    ),
    Kind(
        "histc",
        "input, bins=100, min=0, max=0",
        shapes_rule=lambda view: [[int(view["bins"])]],
        dtype_rule=input_dtype,
    ),
    Kind(
        "bincount",
        "input, weights=None, minlength=0",
        shapes_rule=lambda view: [[int(view["minlength"])]],
        dtype_rule=index_dtype,
        synchronises=True,
    ),
)


def _both(view: View) -> Shape:
    return broadcast([view.shape("x1"), view.shape("x2")])


def _without(shape: Shape, dim: int) -> Shape:
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]
