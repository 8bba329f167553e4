"""Convolutions and their transposes."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import product_of
from opdb.kinds.canonical import chain, drop, spread
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import Shape, View, entry, inputs_and_outputs, numel, promoted_dtype
from opdb.records import ALGORITHM_SETTING

SETTINGS = ("tf32_convolution", "cudnn_benchmark")


def convolution_shape(view: View) -> list[Shape]:
    """Give floor((n + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for each axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        size, kernel = image[axis - rank], weight[axis + 2]
        stride, dilation = entry(view["stride"], axis), entry(view["dilation"], axis)
        padding = view["padding"]
        if padding == "same":
            axes.append(size)
            continue
        around = 0 if padding == "valid" else 2 * entry(padding, axis)
        axes.append((size + around - dilation * (kernel - 1) - 1) // stride + 1)
    return [[*image[: -rank - 1], weight[0], *axes]]


def transposed_shape(view: View) -> list[Shape]:
    """Give (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 an axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        stride, padding, added, dilation = (
            entry(view[n], axis) for n in ("stride", "padding", "output_padding", "dilation")
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


def _canonical(rank: int, **more: int) -> Canonical:
    return chain(spread(rank, stride=1, padding=0, dilation=1, **more), drop("padding", "valid"))


convolution = partial(
    Kind,
    spelled="input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, "
    "padding_mode='zeros'",
    flops_rule=convolution_flops,
    bytes_rule=inputs_and_outputs,
    shapes_rule=convolution_shape,
    dtype_rule=promoted_dtype,
    backward=product_of("input", "weight"),
    nonzero_rule=dense,
    kernels="convolution",
    functions="F.{0} torch.{0}",
    settings=SETTINGS,
)
transposed = partial(
    convolution,
    spelled="input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    flops_rule=transposed_flops,
    shapes_rule=transposed_shape,
)
register(
    convolution("conv1d", canonical=_canonical(1)),
    convolution("conv2d", canonical=_canonical(2), settings=(*SETTINGS, ALGORITHM_SETTING)),
    convolution("conv3d", canonical=_canonical(3)),
    *(
        transposed(f"conv_transpose{rank}d", canonical=_canonical(rank, output_padding=0))
        for rank in (1, 2, 3)
    ),
)
