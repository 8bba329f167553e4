"""Pools."""

from __future__ import annotations

from math import ceil

from opdb.kinds.canonical import Arguments, spread_now
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import Shape, ShapesRule, View, input_dtype, kept_rectified, numel


def _entry(value: object, axis: int) -> int:
    return int(value[axis]) if isinstance(value, list) else int(value)  # type: ignore[call-overload]


def pool_shape(rank: int) -> ShapesRule:
    """Return the rule for windows that slide: as a convolution's, ceil where asked."""

    def rule(view: View) -> list[Shape]:
        shape = view.shape()
        kernels, strides = view["kernel_size"], view["stride"] or view["kernel_size"]
        axes = []
        for axis in range(rank):
            dilation = _entry(view["dilation"] or 1, axis)
            kernel, stride = _entry(kernels, axis), _entry(strides, axis)
            padding = _entry(view["padding"] or 0, axis)
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
        min(_entry(kernels, axis), shape[axis - rank] + 2 * _entry(view["padding"] or 0, axis))
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


def _pool(name: str, rank: int, signature: str) -> Kind:
    return Kind(
        name,
        f"input, kernel_size, stride=None, {signature}",
        flops_rule=window_flops,
        shapes_rule=pool_shape(rank),
        dtype_rule=input_dtype,
        then_indices=True,
        values_rule=kept_rectified,
        canonical=_window(rank),
    )


def _adaptive_pool(name: str, rank: int, signature: str) -> Kind:
    return Kind(
        name,
        f"input, output_size{signature}",
        flops_rule=adaptive_flops,
        shapes_rule=adaptive_shape(rank),
        dtype_rule=input_dtype,
        then_indices=True,
        values_rule=kept_rectified,
        canonical=_adaptive(rank),
    )


_MAX = "padding=0, dilation=1, ceil_mode=False, return_indices=False"
_AVERAGE = "padding=0, ceil_mode=False, count_include_pad=True"
for _rank in (1, 2, 3):
    _divisor = "" if _rank == 1 else ", divisor_override=None"
    register(
        _pool(f"max_pool{_rank}d", _rank, _MAX),
        _pool(f"avg_pool{_rank}d", _rank, _AVERAGE + _divisor),
        _adaptive_pool(f"adaptive_avg_pool{_rank}d", _rank, ""),
        _adaptive_pool(f"adaptive_max_pool{_rank}d", _rank, ", return_indices=False"),
        Kind(
            f"lp_pool{_rank}d",
            "input, norm_type, kernel_size, stride=None, ceil_mode=False",
            flops_rule=window_flops,
            shapes_rule=pool_shape(_rank),
            canonical=_window(_rank) if _rank > 1 else _single_window,
        ),
    )
