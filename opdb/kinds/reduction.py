"""Reductions, scans, sorting and searching; normalisations; losses; optimizer steps."""

from __future__ import annotations

from functools import partial

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR,
    NO_FUNCTION,
    ONCE,
    PASSED_ON,
    PLAIN,
    JsonArguments,
    broadcasting,
    count_dims,
    dense,
    drop_unless,
    elementwise,
    listed,
    moved,
    twice,
)
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import CountRule, Shape, View


def reduced_shape(view: View) -> list[Shape]:
    """Give the shape without the dimensions reduced, whether or not they are kept with one."""
    shape, dims = view.shape(), view["dim"]
    if dims is None or dims == []:
        return [[]]
    gone = {d % max(len(shape), 1) for d in (dims if isinstance(dims, list) else [dims])}
    return [[n for axis, n in enumerate(shape) if axis not in gone]]


def _both(view: View) -> Shape:
    return v.broadcast([view.shape("x1"), view.shape("x2")])


def _without(shape: Shape, dim: int) -> Shape:
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]


# One operation for each input element; the dimensions that it is taken over are gone.
reduction = partial(
    Kind,
    spelled="input, dim=None, keepdim=False",
    flops_rule=v.one_flop_an_input,
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=reduced_shape,
    dtype_rule=v.named_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    functions=PLAIN,
    canonical=count_dims(dim=None),
)

typed = partial(reduction, spelled="input, dim=None, keepdim=False, *, dtype=None")
over_given = partial(reduction, spelled="input, dim=(), keepdim=False")
# One of the elements, and where it was.
chosen = partial(
    reduction,
    shapes_rule=lambda view: reduced_shape(view) * (1 if view["dim"] is None else 2),
    dtype_rule=v.input_dtype,
    then_indices=True,
)

truth = partial(
    reduction,
    flops_rule=v.no_flops,
    dtype_rule=v.bool_dtype,
    backward=CONSTANT,
    functions=f"{PLAIN} torch._is_{{0}}_true(input) Tensor._is_{{0}}_true(input)",
)
place = partial(reduction, dtype_rule=v.index_dtype, backward=CONSTANT)
deviation = partial(
    reduction,
    spelled="input, dim=None, *, correction=1, keepdim=False",
    flops_rule=v.flops_an_element(4),
    dtype_rule=v.input_dtype,
    functions="torch.{0}",
)
register(
    typed("sum", dtype_rule=v.summed_dtype, backward=PASSED_ON),
    typed("mean", backward=LINEAR),
    typed("prod", dtype_rule=v.summed_dtype),
    typed("nansum", dtype_rule=v.summed_dtype),
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
    deviation("std_mean", shapes_rule=lambda view: reduced_shape(view) * 2),
    deviation("var_mean", shapes_rule=lambda view: reduced_shape(view) * 2),
    *map(place, ("argmax", "argmin")),
    *map(truth, ("any", "all")),
    chosen("max", functions=NO_FUNCTION),
    chosen("min", functions=NO_FUNCTION),
    chosen("median"),
    chosen("mode"),
)

# One output for each input element, of all elements up to it.
scan = partial(
    elementwise,
    spelled="input, dim, *, dtype=None",
    shapes_rule=v.input_shape,
    dtype_rule=v.summed_dtype,
    canonical=count_dims(dim=None),
)

extreme_scan = partial(
    broadcasting,
    spelled="input, dim",
    shapes_rule=lambda view: [view.shape()] * 2,
    then_indices=True,
    canonical=count_dims(dim=None),
)
# Places found among others.
search = partial(moved, shapes_rule=v.input_shape, dtype_rule=v.index_dtype, backward=CONSTANT)

register(
    *map(scan, ("cumsum", "cumprod", "logcumsumexp")),
    *map(extreme_scan, ("cummax", "cummin")),
    broadcasting(
        "topk",
        "input, k, dim=-1, largest=True, sorted=True",
        flops_rule=v.one_flop_an_input,
        shapes_rule=lambda view: [view.resized("dim", int(view["k"]))] * 2,
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    broadcasting(
        "sort",
        "input, dim=-1, descending=False, *, stable=False",
        flops_rule=v.no_flops,
        shapes_rule=lambda view: [view.shape()] * 2,
        then_indices=True,
        canonical=count_dims(dim=-1),
    ),
    search(
        "argsort", "input, dim=-1, descending=False, *, stable=False", canonical=count_dims(dim=-1)
    ),
    search(
        "searchsorted",
        "sorted_sequence, input, *, out_int32=False, right=False, side=None",
        shapes_rule=lambda view: [view.shape()],
    ),
    search("bucketize", "input, boundaries, *, out_int32=False, right=False"),
    broadcasting(
        "cdist",
        "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'",
        flops_rule=lambda view: 3 * view.output_elements * view.shape("x1")[-1],
        shapes_rule=lambda view: [
            [*view.shape("x1")[:-2], view.shape("x1")[-2], view.shape("x2")[-2]]
        ],
        settings=("tf32_matmul",),
        raised=True,
    ),
    broadcasting(
        "cosine_similarity",
        "x1, x2, dim=1, eps=1e-08",
        flops_rule=lambda view: 6 * v.numel(_both(view)),
        shapes_rule=lambda view: [_without(_both(view), int(view["dim"]))],
        functions="F.{0} torch.{0} nn.CosineSimilarity(x1, x2)",
    ),
    broadcasting(
        "pairwise_distance",
        "x1, x2, p=2.0, eps=1e-06, keepdim=False",
        flops_rule=lambda view: 4 * v.numel(_both(view)),
        shapes_rule=lambda view: [_both(view)[:-1]],
        functions="F.{0} torch.{0}",
    ),
    broadcasting(
        "histc",
        "input, bins=100, min=0, max=0",
        shapes_rule=lambda view: [[int(view["bins"])]],
        dtype_rule=v.input_dtype,
    ),
    broadcasting(
        "bincount",
        "input, weights=None, minlength=0",
        shapes_rule=lambda view: [[int(view["minlength"])]],
        dtype_rule=v.index_dtype,
        backward=CONSTANT,
        waits_rule=v.always,
    ),
)


# normalisations


def _norm_flops(per_element: int, affine: int = 2) -> CountRule:
    def rule(view: View) -> int:
        scaled = affine if view["weight"] is not None else 0
        return v.numel(view.shape()) * (per_element + scaled)

    return rule


def _instance_norm(parameters: JsonArguments, inputs: JsonArguments) -> None:
    if "running_mean" not in inputs:
        parameters.pop("momentum", None)
        parameters.pop("use_input_stats", None)


# A normalisation: its input in the same shape, for two forward passes backward.
norm = partial(
    Kind,
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=v.input_shape,
    dtype_rule=v.input_dtype,
    backward=twice(),
    nonzero_rule=dense,
    functions="F.{0}",
)

register(
    norm(
        "batch_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, training=False, "
        "momentum=0.1, eps=1e-05",
        # a scale and a shift (2) an element; with batch statistics the 5 that make them too
        flops_rule=lambda view: v.numel(view.shape()) * (7 if view["training"] else 2),
        # an evaluation neither updates nor reads the running statistics' momentum
        canonical=drop_unless("training", "momentum"),
        functions="F.batch_norm(input, running_mean, running_var, weight=None, bias=None, "
        "training=False, momentum=0.1, eps=1e-05) torch.batch_norm(input, weight, bias, "
        "running_mean, running_var, training, momentum, eps, _cudnn)",
    ),
    norm(
        "layer_norm",
        "input, normalized_shape, weight=None, bias=None, eps=1e-05",
        flops_rule=_norm_flops(5),
        canonical=listed("normalized_shape"),
        functions="F.layer_norm torch.layer_norm(input, normalized_shape, weight=None, bias=None, "
        "eps=1e-05, _cudnn=True)",
    ),
    norm(
        "rms_norm",
        "input, normalized_shape, weight=None, eps=None",
        flops_rule=_norm_flops(3, 1),
        canonical=listed("normalized_shape"),
        functions="F.rms_norm torch.rms_norm",
    ),
    norm(
        "group_norm",
        "input, num_groups, weight=None, bias=None, eps=1e-05",
        flops_rule=_norm_flops(5),
        functions="F.group_norm torch.group_norm(input, num_groups, weight=None, bias=None, "
        "eps=1e-05, _cudnn=True)",
    ),
    norm(
        "instance_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, "
        "use_input_stats=True, momentum=0.1, eps=1e-05",
        flops_rule=_norm_flops(5),
        canonical=_instance_norm,
    ),
    norm(
        "local_response_norm",
        "input, size, alpha=0.0001, beta=0.75, k=1.0",
        flops_rule=lambda view: v.numel(view.shape()) * (int(view["size"]) + 4),
        dtype_rule=v.promoted_dtype,
        functions="F.{0} nn.LocalResponseNorm",
    ),
    norm(
        "normalize",
        "input, p=2.0, dim=1, eps=1e-12",
        flops_rule=v.flops_an_element(3),
        dtype_rule=v.promoted_dtype,
        canonical=count_dims(dim=1),
        functions="F.normalize(input, p=2.0, dim=1, eps=1e-12)",
    ),
    # a square, a sum and a product an element; the norms themselves are few
    norm(
        "weight_norm",
        "input, magnitude, dim=0",
        flops_rule=v.flops_an_element(3),
        functions="torch._weight_norm",
    ),
    moved("renorm", "input, p, dim, maxnorm", shapes_rule=v.input_shape, backward=ONCE),
)


# losses: one number, or one for each element


# The five operations of a softmax and a logarithm for each element.
_SOFTMAX = v.flops_an_element(6)

# A difference, its square (or absolute value) and the sum of all.
_DIFFERENCE = v.flops_an_element(3)

_OF_CLASSES = "weight=None, ignore_index=-100, reduction='mean'"


def _reduced(view: View) -> list[Shape]:
    """Give one number, or without a reduction one for each place: the input's, but for classes."""
    shape = view.shape()
    return [[*shape[:-1][:1], *shape[2:]] if view["reduction"] == "none" else []]


def _classes(view: View, name: str) -> int | None:
    """Bound the target by the classes that the input has scores of."""
    shape = view.shape()
    return int(shape[1] if len(shape) > 1 else shape[0]) if name == "target" else None


loss = partial(
    Kind,
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=lambda view: [view.shape() if view["reduction"] == "none" else []],
    dtype_rule=v.input_dtype,
    backward=ONCE,
    nonzero_rule=dense,
)
class_loss = partial(loss, shapes_rule=_reduced, bound_rule=_classes)

# arguments that torch deprecates have no description
_OF_TWO = "F.{0}(input, target, size_average=None, reduce=None, reduction='mean', weight=None)"
register(
    class_loss(
        "cross_entropy",
        f"input, target, {_OF_CLASSES}, label_smoothing=0.0",
        flops_rule=_SOFTMAX,
        functions="F.{0}(input, target, weight=None, size_average=None, ignore_index=-100, "
        "reduce=None, reduction='mean', label_smoothing=0.0)",
    ),
    class_loss(
        "nll_loss",
        f"input, target, {_OF_CLASSES}",
        flops_rule=v.flops_an_element(1, "target"),
        functions="F.{0}(input, target, weight=None, size_average=None, ignore_index=-100, "
        "reduce=None, reduction='mean')",
    ),
    loss(
        "mse_loss",
        "input, target, reduction='mean', weight=None",
        flops_rule=_DIFFERENCE,
        functions=_OF_TWO,
    ),
    loss(
        "l1_loss",
        "input, target, reduction='mean', weight=None",
        flops_rule=_DIFFERENCE,
        functions=_OF_TWO,
    ),
    loss(
        "smooth_l1_loss",
        "input, target, reduction='mean', beta=1.0",
        flops_rule=_DIFFERENCE,
        functions="F.{0}(input, target, size_average=None, reduce=None, reduction='mean', "
        "beta=1.0)",
    ),
    loss(
        "binary_cross_entropy_with_logits",
        "input, target, weight=None, reduction='mean', pos_weight=None",
        flops_rule=_SOFTMAX,
        functions="F.{0}(input, target, weight=None, size_average=None, reduce=None, "
        "reduction='mean', pos_weight=None)",
    ),
)
