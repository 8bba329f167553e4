"""Losses: one number, or one for each element."""

from __future__ import annotations

from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, View, input_dtype, numel

_OF_CLASSES = "weight=None, ignore_index=-100, reduction='mean'"


def _reduced(view: View) -> list[Shape]:
    """Give one number, or without a reduction one for each place: the input's, but for classes."""
    shape = view.shape()
    return [[*shape[:-1][:1], *shape[2:]] if view["reduction"] == "none" else []]


def _reduced_input(view: View) -> list[Shape]:
    return [view.shape() if view["reduction"] == "none" else []]


def _of_softmax(view: View) -> int:
    """Count the five operations of a softmax and a logarithm for each element."""
    return 6 * numel(view.shape())


def _picked(view: View) -> int:
    return numel(view.shape("target"))


def _three(view: View) -> int:
    return 3 * numel(view.shape())


register(
    Kind(
        "cross_entropy",
        f"input, target, {_OF_CLASSES}, label_smoothing=0.0",
        flops_rule=_of_softmax,
        shapes_rule=_reduced,
        dtype_rule=input_dtype,
    ),
    Kind(
        "nll_loss",
        f"input, target, {_OF_CLASSES}",
        flops_rule=_picked,
        shapes_rule=_reduced,
        dtype_rule=input_dtype,
    ),
    # a difference, its square (or absolute value) and the sum of all
    Kind(
        "mse_loss",
        "input, target, reduction='mean', weight=None",
        flops_rule=_three,
        shapes_rule=_reduced_input,
        dtype_rule=input_dtype,
    ),
    Kind(
        "l1_loss",
        "input, target, reduction='mean', weight=None",
        flops_rule=_three,
        shapes_rule=_reduced_input,
        dtype_rule=input_dtype,
    ),
    Kind(
        "smooth_l1_loss",
        "input, target, reduction='mean', beta=1.0",
        flops_rule=_three,
        shapes_rule=_reduced_input,
        dtype_rule=input_dtype,
    ),
    Kind(
        "binary_cross_entropy_with_logits",
        "input, target, weight=None, reduction='mean', pos_weight=None",
        flops_rule=_of_softmax,
        shapes_rule=_reduced_input,
        dtype_rule=input_dtype,
    ),
)
