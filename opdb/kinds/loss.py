"""Losses: one number, or one for each element."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import ONCE
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, View, flops_an_element, input_dtype, inputs_and_outputs

_SOFTMAX = flops_an_element(6)
"""The five operations of a softmax and a logarithm for each element."""

_DIFFERENCE = flops_an_element(3)
"""A difference, its square (or absolute value) and the sum of all."""

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
    bytes_rule=inputs_and_outputs,
    shapes_rule=lambda view: [view.shape() if view["reduction"] == "none" else []],
    dtype_rule=input_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    kernels="generated",
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
        flops_rule=flops_an_element(1, "target"),
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
