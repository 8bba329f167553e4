"""Normalisations."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import ONCE, twice
from opdb.kinds.canonical import Arguments, count_dims, drop_unless, listed
from opdb.kinds.families import moved
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    CountRule,
    View,
    flops_an_element,
    input_dtype,
    input_shape,
    inputs_and_outputs,
    numel,
    promoted_dtype,
)


def _flops(per_element: int, affine: int = 2) -> CountRule:
    def rule(view: View) -> int:
        scaled = affine if view["weight"] is not None else 0
        return numel(view.shape()) * (per_element + scaled)

    return rule


def batch_norm_flops(view: View) -> int:
    """Count a scale and a shift (2) an element; with batch statistics the 5 that make them too."""
    return numel(view.shape()) * (7 if view["training"] else 2)


def _instance_norm(parameters: Arguments, inputs: Arguments) -> None:
    if "running_mean" not in inputs:
        parameters.pop("momentum", None)
        parameters.pop("use_input_stats", None)


norm = partial(
    Kind,
    bytes_rule=inputs_and_outputs,
    shapes_rule=input_shape,
    dtype_rule=input_dtype,
    backward=twice(),
    nonzero_rule=dense,
    kernels="generated",
    functions="F.{0}",
)
"""A normalisation: its input in the same shape, for two forward passes backward."""

register(
    norm(
        "batch_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, training=False, "
        "momentum=0.1, eps=1e-05",
        flops_rule=batch_norm_flops,
        # an evaluation neither updates nor reads the running statistics' momentum
        canonical=drop_unless("training", "momentum"),
        functions="F.batch_norm(input, running_mean, running_var, weight=None, bias=None, "
        "training=False, momentum=0.1, eps=1e-05) torch.batch_norm(input, weight, bias, "
        "running_mean, running_var, training, momentum, eps, _cudnn)",
    ),
    norm(
        "layer_norm",
        "input, normalized_shape, weight=None, bias=None, eps=1e-05",
        flops_rule=_flops(5),
        canonical=listed("normalized_shape"),
        functions="F.layer_norm torch.layer_norm(input, normalized_shape, weight=None, bias=None, "
        "eps=1e-05, _cudnn=True)",
    ),
    norm(
        "rms_norm",
        "input, normalized_shape, weight=None, eps=None",
        flops_rule=_flops(3, 1),
        canonical=listed("normalized_shape"),
        functions="F.rms_norm torch.rms_norm",
    ),
    norm(
        "group_norm",
        "input, num_groups, weight=None, bias=None, eps=1e-05",
        flops_rule=_flops(5),
        functions="F.group_norm torch.group_norm(input, num_groups, weight=None, bias=None, "
        "eps=1e-05, _cudnn=True)",
    ),
    norm(
        "instance_norm",
        "input, running_mean=None, running_var=None, weight=None, bias=None, "
        "use_input_stats=True, momentum=0.1, eps=1e-05",
        flops_rule=_flops(5),
        canonical=_instance_norm,
    ),
    norm(
        "local_response_norm",
        "input, size, alpha=0.0001, beta=0.75, k=1.0",
        flops_rule=lambda view: numel(view.shape()) * (int(view["size"]) + 4),
        dtype_rule=promoted_dtype,
    ),
    norm(
        "normalize",
        "input, p=2.0, dim=1, eps=1e-12",
        flops_rule=flops_an_element(3),
        dtype_rule=promoted_dtype,
        canonical=count_dims(dim=1),
        functions="F.normalize(input, p=2.0, dim=1, eps=1e-12)",
    ),
    # a square, a sum and a product an element; the norms themselves are few
    norm(
        "weight_norm",
        "input, magnitude, dim=0",
        flops_rule=flops_an_element(3),
        functions="torch._weight_norm",
    ),
    moved("renorm", "input, p, dim, maxnorm", shapes_rule=input_shape, backward=ONCE),
)
