"""Convolutions and their transposes."""

from __future__ import annotations

from opdb.kinds.canonical import chain, spread
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import Shape, View, numel
from opdb.records import ALGORITHM_SETTING

SETTINGS = ("tf32_convolution", "cudnn_benchmark")
FORCIBLE = {"conv2d": (*SETTINGS, ALGORITHM_SETTING)}
"""The kinds whose algorithm can be forced, with what touches them."""


def _entry(value: object, axis: int) -> int:
    return int(value[axis]) if isinstance(value, list) else int(value)  # type: ignore[call-overload]


def convolution_shape(view: View) -> list[Shape]:
    """Give floor((n + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for each axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        size, kernel = image[axis - rank], weight[axis + 2]
        stride, dilation = _entry(view["stride"], axis), _entry(view["dilation"], axis)
        padding = view["padding"]
        if padding == "same":
            axes.append(size)
            continue
        around = 0 if padding == "valid" else 2 * _entry(padding, axis)
        axes.append((size + around - dilation * (kernel - 1) - 1) // stride + 1)
    return [[*image[: -rank - 1], weight[0], *axes]]


def transposed_shape(view: View) -> list[Shape]:
    """Give (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 an axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        stride, padding, added, dilation = (
            _entry(view[n], axis) for n in ("stride", "padding", "output_padding", "dilation")
        )
        kernel = weight[axis + 2]
        axes.append(
            (image[axis - rank] - 1) * stride - 2 * padding + dilation * (kernel - 1) + added + 1
        )
    return [[*image[: -rank - 1], weight[1] * int(view["groups"]), *axes]]


def convolution_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element and each weight that makes it."""
    return 2 * view.output_elements * numel(view.shape("weight")[1:])


def transposed_flops(view: View) -> int:
    """Count a multiply-add (2) for each input element and each weight that spreads it."""
    return 2 * numel(view.shape()) * numel(view.shape("weight")[1:])


def _zeros_padding(parameters: dict[str, object], inputs: dict[str, object]) -> None:
    # "valid" is padding 0 by another name
    if parameters.get("padding") == "valid":
        del parameters["padding"]


def _canonical(rank: int, **more: int) -> Canonical:
    return chain(spread(rank, stride=1, padding=0, dilation=1, **more), _zeros_padding)


_PLAIN = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *"
_TRANSPOSED = (
    "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *"
)
for _rank in (1, 2, 3):
    register(
        Kind(
            f"conv{_rank}d",
            f"{_PLAIN}, padding_mode='zeros'",
            flops_rule=convolution_flops,
            shapes_rule=convolution_shape,
            canonical=_canonical(_rank),
            settings=FORCIBLE.get(f"conv{_rank}d", SETTINGS),
        ),
        Kind(
            f"conv_transpose{_rank}d",
            _TRANSPOSED.removesuffix(", *"),
            flops_rule=transposed_flops,
            shapes_rule=transposed_shape,
            canonical=_canonical(_rank, output_padding=0),
            settings=SETTINGS,
        ),
    )
