"""Pools."""

from __future__ import annotations

from functools import partial
from math import ceil

from opdb.kinds.backward import LINEAR, ONCE
from opdb.kinds.canonical import Arguments, spread_now
from opdb.kinds.gradients import averaged, dense, goes_on, unchanged
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import (
    Shape,
    ShapesRule,
    View,
    entry,
    input_dtype,
    inputs_and_outputs,
    kept_rectified,
    no_values,
    numel,
    promoted_dtype,
)


def pool_shape(rank: int) -> ShapesRule:
    """Return the rule for windows that slide: as a convolution's, ceil where asked."""

    def rule(view: View) -> list[Shape]:
        shape = view.shape()
        kernels, strides = view["kernel_size"], view["stride"] or view["kernel_size"]
        axes = []
        for axis in range(rank):
            dilation = entry(view["dilation"] or 1, axis)
            kernel, stride = entry(kernels, axis), entry(strides, axis)
            padding = entry(view["padding"] or 0, axis)
            size = shape[axis - rank]
            span = size + 2 * padding - dilation * (kernel - 1) - 1
            out = (ceil(span / stride) if view["ceil_mode"] else span // stride) + 1
            # a window must start inside the input or its left padding
            if view["ceil_mode"] and (out - 1) * stride >= size + padding:
                out -= 1
            axes.append(out)
        one: Shape = [*shape[: len(shape) - rank], *axes]
        return [one, one] if view["return_indices"] else [one]

    return rule


def adaptive_shape(rank: int) -> ShapesRule:
    """Return the rule for a given output size; None keeps the input's."""

    def rule(view: View) -> list[Shape]:
        shape = view.shape()
        given = view["output_size"]
        for axis in range(rank):
            size = given[axis] if isinstance(given, list) else given
            if size is not None:
                shape[axis - rank] = int(size)
        return [shape, shape] if view["return_indices"] else [shape]

    return rule


def window_flops(view: View) -> int:
    """Count one operation for each output element and each entry of its window.

    A window larger than its input with its padding has no more entries than these.
    """
    kernels, shape = view["kernel_size"], view.shape()
    rank = len(kernels) if isinstance(kernels, list) else 1
    entries = [
        min(entry(kernels, axis), shape[axis - rank] + 2 * entry(view["padding"] or 0, axis))
        for axis in range(rank)
    ]
    return numel(view.outputs[0]) * numel(entries)


def adaptive_flops(view: View) -> int:
    """Count one operation for each input element, or output element where there are more."""
    return max(numel(view.shape()), numel(view.outputs[0]))


def _window(rank: int) -> Canonical:
    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        spread_now(parameters, rank, kernel_size=None, stride=None, padding=0, dilation=1)
        # torch's rule: no stride is the window's size
        if parameters.get("stride") in ([], parameters["kernel_size"]):
            del parameters["stride"]

    return rewrite


def _single_window(parameters: Arguments, inputs: Arguments) -> None:
    # torch computes with this window's size, which must stay a number
    for name in ("kernel_size", "stride"):
        value = parameters.get(name)
        if isinstance(value, list) and len(value) == 1:
            parameters[name] = value[0]
    if parameters.get("stride") in ([], parameters["kernel_size"]):
        parameters.pop("stride")


def _adaptive(rank: int) -> Canonical:
    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        value = parameters.get("output_size")
        if not isinstance(value, list):
            value = [value] * rank
        parameters["output_size"] = value * rank if len(value) == 1 else value

    return rewrite


pool = partial(
    Kind,
    flops_rule=window_flops,
    bytes_rule=inputs_and_outputs,
    dtype_rule=input_dtype,
    backward=ONCE,
    nonzero_rule=goes_on,
    kernels="generated",
    functions="F.{0}",
    then_indices=True,
    values_rule=kept_rectified,
)
"""A window that slides over the last dimensions, for one output in each place."""

adaptive = partial(pool, flops_rule=adaptive_flops)
"""A pool whose output has a given size."""

_MAX = "padding=0, dilation=1, ceil_mode=False"
_AVERAGE = "padding=0, ceil_mode=False, count_include_pad=True"
for _rank in (1, 2, 3):
    _divisor = "" if _rank == 1 else ", divisor_override=None"
    _sliding = partial(pool, shapes_rule=pool_shape(_rank), canonical=_window(_rank))
    _sized = partial(adaptive, shapes_rule=adaptive_shape(_rank), canonical=_adaptive(_rank))
    register(
        _sliding(
            f"max_pool{_rank}d",
            f"input, kernel_size, stride=None, {_MAX}, return_indices=False",
            functions=f"F.{{0}} torch.{{0}}(input, kernel_size, stride=None, {_MAX}) "
            f"F.{{0}}_with_indices(input, kernel_size, stride=None, {_MAX}, return_indices=True)",
        ),
        _sliding(
            f"avg_pool{_rank}d",
            f"input, kernel_size, stride=None, {_AVERAGE}{_divisor}",
            backward=LINEAR,
            nonzero_rule=averaged(_rank),
        ),
        _sized(
            f"adaptive_avg_pool{_rank}d",
            "input, output_size",
            backward=LINEAR,
            nonzero_rule=unchanged,
            functions="F.{0} torch.{0}",
        ),
        _sized(
            f"adaptive_max_pool{_rank}d",
            "input, output_size, return_indices=False",
            functions="F.{0} F.{0}_with_indices(input, output_size, return_indices=True)",
        ),
        _sliding(
            f"lp_pool{_rank}d",
            "input, norm_type, kernel_size, stride=None, ceil_mode=False",
            dtype_rule=promoted_dtype,
            nonzero_rule=dense,
            then_indices=False,
            values_rule=no_values,
            canonical=_window(_rank) if _rank > 1 else _single_window,
        ),
    )
