"""Reductions, scans, sorting and searching."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import CONSTANT, LINEAR, ONCE, PASSED_ON
from opdb.kinds.canonical import count_dims
from opdb.kinds.families import NO_FUNCTION, PLAIN, broadcasting, elementwise, moved
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    always,
    bool_dtype,
    broadcast,
    flops_an_element,
    index_dtype,
    input_dtype,
    input_shape,
    inputs_and_outputs,
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


def _twice_reduced(view: View) -> list[Shape]:
    return reduced_shape(view) * 2


def _top_shape(view: View) -> list[Shape]:
    shape = view.shape()
    shape[int(view["dim"])] = int(view["k"])
    return [shape, shape]


def _pair(view: View) -> list[Shape]:
    return [view.shape(), view.shape()]


def _both(view: View) -> Shape:
    return broadcast([view.shape("x1"), view.shape("x2")])


def _without(shape: Shape, dim: int) -> Shape:
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]


reduction = partial(
    Kind,
    spelled="input, dim=None, keepdim=False",
    flops_rule=one_flop_an_input,
    bytes_rule=inputs_and_outputs,
    shapes_rule=reduced_shape,
    dtype_rule=named_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    kernels="generated",
    functions=PLAIN,
    canonical=count_dims(dim=None),
)
"""One operation for each input element; the dimensions that it is taken over are gone."""

typed = partial(reduction, spelled="input, dim=None, keepdim=False, *, dtype=None")
over_given = partial(reduction, spelled="input, dim=(), keepdim=False")
chosen = partial(
    reduction,
    shapes_rule=_with_indices,
    dtype_rule=input_dtype,
    then_indices=True,
)
"""One of the elements, and where it was."""

truth = partial(reduction, flops_rule=no_flops, dtype_rule=bool_dtype, backward=CONSTANT)
place = partial(reduction, dtype_rule=index_dtype, backward=CONSTANT)
deviation = partial(
    reduction,
    spelled="input, dim=None, *, correction=1, keepdim=False",
    flops_rule=flops_an_element(4),
    dtype_rule=input_dtype,
    functions="torch.{0}",
)
register(
    typed("sum", dtype_rule=summed_dtype, backward=PASSED_ON, functions="torch.sum Tensor.sum"),
    typed("mean", backward=LINEAR, functions="torch.mean Tensor.mean"),
    typed("prod", dtype_rule=summed_dtype),
    typed("nansum", dtype_rule=summed_dtype),
    typed("nanmean"),
    over_given("amax"),
    over_given("amin"),
    reduction("logsumexp", spelled="input, dim, keepdim=False"),
    reduction(
        "vector_norm",
        spelled="input, ord=2, dim=None, keepdim=False, *, dtype=None",
        functions="linalg.vector_norm",
    ),
    reduction(
        "norm",
        spelled="input, p='fro', dim=None, keepdim=False, *, dtype=None",
        functions="torch.norm(input, p='fro', dim=None, keepdim=False, out=None, dtype=None) "
        "Tensor.norm(input, p='fro', dim=None, keepdim=False, dtype=None)",
    ),
    deviation("std"),
    deviation("var"),
    deviation("std_mean", shapes_rule=_twice_reduced),
    deviation("var_mean", shapes_rule=_twice_reduced),
    *map(place, ("argmax", "argmin")),
    *map(truth, ("any", "all")),
    chosen("max", functions=NO_FUNCTION),
    chosen("min", functions=NO_FUNCTION),
    chosen("median", kernels="other"),
    chosen("mode", kernels="other"),
)

scan = partial(
    elementwise,
    spelled="input, dim, *, dtype=None",
    shapes_rule=input_shape,
    dtype_rule=summed_dtype,
    canonical=count_dims(dim=None),
)
"""One output for each input element, of all elements up to it."""

extreme_scan = partial(
    broadcasting,
    spelled="input, dim",
    shapes_rule=_pair,
    then_indices=True,
    canonical=count_dims(dim=None),
)
search = partial(
    moved,
    shapes_rule=input_shape,
    dtype_rule=index_dtype,
    backward=CONSTANT,
    kernels="other",
)
"""Places found among others."""

register(
    *map(scan, ("cumsum", "cumprod", "logcumsumexp")),
    *map(extreme_scan, ("cummax", "cummin")),
    broadcasting(
        "topk",
        "input, k, dim=-1, largest=True, sorted=True",
        flops_rule=one_flop_an_input,
        shapes_rule=_top_shape,
        kernels="other",
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    broadcasting(
        "sort",
        "input, dim=-1, descending=False, *, stable=False",
        flops_rule=no_flops,
        shapes_rule=_pair,
        kernels="other",
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    search(
        "argsort",
        "input, dim=-1, descending=False, *, stable=False",
        canonical=count_dims(dim=-1),
        functions="torch.argsort Tensor.argsort",
    ),
    search(
        "searchsorted",
        "sorted_sequence, input, *, out_int32=False, right=False, side=None",
        shapes_rule=lambda view: [view.shape()],
        functions="torch.searchsorted",
    ),
    search("bucketize", "input, boundaries, *, out_int32=False, right=False", kernels="generated"),
    broadcasting(
        "cdist",
        "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'",
        flops_rule=lambda view: 3 * view.output_elements * view.shape("x1")[-1],
        shapes_rule=lambda view: [
            [*view.shape("x1")[:-2], view.shape("x1")[-2], view.shape("x2")[-2]]
        ],
        kernels="other",
        settings=("tf32_matmul",),
        raised=True,
    ),
    broadcasting(
        "cosine_similarity",
        "x1, x2, dim=1, eps=1e-08",
        flops_rule=lambda view: 6 * numel(_both(view)),
        shapes_rule=lambda view: [_without(_both(view), int(view["dim"]))],
        functions="F.{0} torch.{0}",
    ),
    broadcasting(
        "pairwise_distance",
        "x1, x2, p=2.0, eps=1e-06, keepdim=False",
        flops_rule=lambda view: 4 * numel(_both(view)),
        shapes_rule=lambda view: [_both(view)[:-1] + ([1] if view["keepdim"] else [])],
        functions="F.{0} torch.{0}",
    ),
    broadcasting(
        "histc",
        "input, bins=100, min=0, max=0",
        shapes_rule=lambda view: [[int(view["bins"])]],
        dtype_rule=input_dtype,
        functions="torch.histc Tensor.histc",
    ),
    broadcasting(
        "bincount",
        "input, weights=None, minlength=0",
        shapes_rule=lambda view: [[int(view["minlength"])]],
        dtype_rule=index_dtype,
        backward=CONSTANT,
        waits_rule=always,
    ),
)
