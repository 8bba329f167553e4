"""A plain direct convolution in Triton: every output is summed up in its place.

cuDNN names a direct algorithm and never had one, so this is opdb's own, as the definition says it:
no matrix, no transform, no tensor cores, sums in float32. It is slow, and a measure for the others.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from opdb.algorithms.convolution import ConvolutionShapes
from opdb.errors import RefusedError

TYPES = ("float32", "float16", "bfloat16")
# Outputs that one program sums up: `PIXELS` pixels of `CHANNELS` channels of one group.
PIXELS, CHANNELS = 64, 32

MOST_ELEMENTS = 2**31


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        *("images", "channels_in", "high", "wide", "channels_out", "out_high", "out_wide"),
        *("stride_high", "stride_wide", "padding_high", "padding_wide"),
        *("dilation_high", "dilation_wide"),
    ]
)
def opdb_direct_convolution(  # type: ignore[no-untyped-def]
    x,
    w,
    b,
    y,
    images,
    channels_in,  # of a group
    high,
    wide,
    channels_out,  # of a group
    out_high,
    out_wide,
    stride_high,
    stride_wide,
    padding_high,
    padding_wide,
    dilation_high,
    dilation_wide,
    groups,
    KERNEL_HIGH: tl.constexpr,  # noqa: N803
    KERNEL_WIDE: tl.constexpr,  # noqa: N803
    CHANNELS_LAST: tl.constexpr,  # noqa: N803
    HAS_BIAS: tl.constexpr,  # noqa: N803
    PIXELS: tl.constexpr,  # noqa: N803
    CHANNELS: tl.constexpr,  # noqa: N803
):
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    group = tl.program_id(2)
    image = pixel // (out_high * out_wide)
    row = pixel // out_wide % out_high
    column = pixel % out_wide
    is_pixel, is_channel = image < images, channel < channels_out
    all_in, all_out = channels_in * groups, channels_out * groups
    filters = group * channels_out + channel
    total = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    for c in range(channels_in):
        source = group * channels_in + c
        for r in range(KERNEL_HIGH):
            for s in range(KERNEL_WIDE):
                h = row * stride_high - padding_high + r * dilation_high
                v = column * stride_wide - padding_wide + s * dilation_wide
                inside = is_pixel & (h >= 0) & (h < high) & (v >= 0) & (v < wide)
                if CHANNELS_LAST:
                    at = ((image * high + h) * wide + v) * all_in + source
                    of = ((filters * KERNEL_HIGH + r) * KERNEL_WIDE + s) * channels_in + c
                else:
                    at = ((image * all_in + source) * high + h) * wide + v
                    of = ((filters * channels_in + c) * KERNEL_HIGH + r) * KERNEL_WIDE + s
                value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
                factor = tl.load(w + of, mask=is_channel, other=0.0).to(tl.float32)
                total += value[:, None] * factor[None, :]
    if HAS_BIAS:
        total += tl.load(b + filters, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    if CHANNELS_LAST:
        to = ((image * out_high + row) * out_wide + column)[:, None] * all_out + filters[None, :]
    else:
        plane = (image * all_out)[:, None] + filters[None, :]
        to = (plane * out_high + row[:, None]) * out_wide + column[:, None]
    tl.store(y + to, total.to(y.dtype.element_ty), mask=is_pixel[:, None] & is_channel[None, :])


def direct(
    problem: ConvolutionShapes, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor
) -> None:
    """Convolve `x` with `w` into `y`, the bias added in the same kernel."""
    if problem.dtype not in TYPES:
        raise RefusedError(
            f"opdb's direct convolution takes {', '.join(TYPES)}; not {problem.dtype}"
        )
    if max(x.numel(), w.numel(), y.numel()) >= MOST_ELEMENTS:
        raise RefusedError("opdb's direct convolution takes tensors of fewer than 2^31 elements")
    images, _, high, wide = problem.input
    _, all_out, out_high, out_wide = problem.output
    channels_out = all_out // problem.groups
    pixels = images * out_high * out_wide
    grid = (-(-pixels // PIXELS), -(-channels_out // CHANNELS), problem.groups)
    opdb_direct_convolution[grid](
        x,
        w,
        y if bias is None else bias,
        y,
        images,
        problem.weight[1],
        high,
        wide,
        channels_out,
        out_high,
        out_wide,
        *problem.stride,
        *problem.padding,
        *problem.dilation,
        problem.groups,
        KERNEL_HIGH=problem.weight[2],
        KERNEL_WIDE=problem.weight[3],
        CHANNELS_LAST=problem.channels_last,
        HAS_BIAS=bias is not None,
        PIXELS=PIXELS,
        CHANNELS=CHANNELS,
    )
