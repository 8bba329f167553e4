"""Normalisations."""

from __future__ import annotations

from opdb.kinds.canonical import Arguments, count_dims
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import CountRule, View, input_dtype, input_shape, no_flops, numel
from opdb.records import Json


def _flops(per_element: int, affine: int = 2) -> CountRule:
    def rule(view: View) -> int:
        scaled = affine if view["weight"] is not None else 0
        return numel(view.shape()) * (per_element + scaled)

    return rule


def batch_norm_flops(view: View) -> int:
    """Count a scale and a shift (2) an element; with batch statistics the 5 that make them too."""
    return numel(view.shape()) * (7 if view["training"] else 2)


def _batch_norm(parameters: Arguments, inputs: Arguments) -> None:
    # an evaluation neither updates nor reads the running statistics' momentum
    if not parameters.get("training"):
        parameters.pop("momentum", None)


def _instance_norm(parameters: Arguments, inputs: Arguments) -> None:
    if "running_mean" not in inputs:
        parameters.pop("momentum", None)
        parameters.pop("use_input_stats", None)


def _shape_as_list(parameters: Arguments, inputs: Arguments) -> None:
    value: Json = parameters.get("normalized_shape")
    if isinstance(value, int):
        parameters["normalized_shape"] = [value]


register(
    Kind(
        "batch_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, training=False, "
        "momentum=0.1, eps=1e-05",
        flops_rule=batch_norm_flops,
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        canonical=_batch_norm,
    ),
    Kind(
        "layer_norm",
        "input, normalized_shape, weight=None, bias=None, eps=1e-05",
        flops_rule=_flops(5),
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        canonical=_shape_as_list,
    ),
    Kind(
        "rms_norm",
        "input, normalized_shape, weight=None, eps=None",
        flops_rule=_flops(3, 1),
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        canonical=_shape_as_list,
    ),
    Kind(
        "group_norm",
        "input, num_groups, weight=None, bias=None, eps=1e-05",
        flops_rule=_flops(5),
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
    ),
    Kind(
        "instance_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, "
        "use_input_stats=True, momentum=0.1, eps=1e-05",
        flops_rule=_flops(5),
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
        canonical=_instance_norm,
    ),
    Kind(
        "local_response_norm",
        "input, size, alpha=0.0001, beta=0.75, k=1.0",
        flops_rule=lambda view: numel(view.shape()) * (int(view["size"]) + 4),
        shapes_rule=input_shape,
    ),
    Kind(
        "normalize",
        "input, p=2.0, dim=1, eps=1e-12",
        flops_rule=lambda view: 3 * numel(view.shape()),
        shapes_rule=input_shape,
        canonical=count_dims(dim=1),
    ),
    # a square, a sum and a product an element; the norms themselves are few
    Kind(
        "weight_norm",
        "input, magnitude, dim=0",
        flops_rule=lambda view: 3 * numel(view.shape()),
        shapes_rule=input_shape,
        dtype_rule=input_dtype,
    ),
    Kind("renorm", "input, p, dim, maxnorm", shapes_rule=input_shape, flops_rule=no_flops),
)
