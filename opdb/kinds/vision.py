"""Interpolation, sampling, detection, and Fourier transforms."""

from __future__ import annotations

from functools import partial
from math import log2

from opdb.kinds.backward import CONSTANT, LINEAR, product_of
from opdb.kinds.canonical import Arguments, chain, drop, spread_now
from opdb.kinds.families import NO_FUNCTION, PLAIN, broadcasting, moved
from opdb.kinds.gradients import goes_on
from opdb.kinds.registry import register
from opdb.kinds.view import (
    Shape,
    View,
    always,
    complex_dtype,
    index_dtype,
    input_dtype,
    input_shape,
    is_spec,
    numel,
    real_dtype,
    same_values,
)


def _list(value: object, rank: int) -> list[float]:
    return list(value) if isinstance(value, list) else [value] * rank  # type: ignore[list-item]


def _interpolated(view: View) -> list[Shape]:
    shape = view.shape()
    rank = len(shape) - 2
    if view["size"] is not None:
        return [[*shape[:2], *(int(n) for n in _list(view["size"], rank))]]
    factors = _list(view["scale_factor"], rank)
    return [[*shape[:2], *(int(n * f) for n, f in zip(shape[2:], factors, strict=True))]]


def interpolation_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element and each input element it weighs."""
    taps = {"nearest": 0, "nearest-exact": 0, "area": 1, "linear": 2, "bilinear": 4}
    more = {"bicubic": 16, "trilinear": 8}
    return 2 * view.output_elements * (taps | more).get(str(view["mode"]), 1)


def _for_each_axis(parameters: Arguments, inputs: Arguments) -> None:
    spec = inputs.get("input")
    if is_spec(spec):
        spread_now(parameters, len(spec["shape"]) - 2, size=None, scale_factor=None)


def _shuffled(view: View) -> list[Shape]:
    *batch, channels, height, width = view.shape()
    factor = int(view["upscale_factor"])
    return [[*batch, channels // factor**2, height * factor, width * factor]]


def _unshuffled(view: View) -> list[Shape]:
    *batch, channels, height, width = view.shape()
    factor = int(view["downscale_factor"])
    return [[*batch, channels * factor**2, height // factor, width // factor]]


def _aligned(view: View) -> list[Shape]:
    boxes = view.specs("boxes")
    count = sum(int(b["shape"][0]) for b in boxes)
    size = [int(n) for n in _list(view["output_size"], 2)]
    return [[count, view.shape()[1], *size]]


def align_flops(view: View) -> int:
    """Count four bilinear taps (2 each) for each sample; an adaptive ratio is taken as 2."""
    ratio = int(view["sampling_ratio"]) if int(view["sampling_ratio"] or -1) > 0 else 2
    return 8 * ratio**2 * view.output_elements


def _samples(view: View) -> int:
    """Return the samples of a batch: a kernel takes one (aten/src/ATen/native/cuda/Im2Col.cu)."""
    return view.shape()[0]


def _columns(view: View) -> list[Shape]:
    batch, channels, *image = view.shape()
    kernel, stride, padding, dilation = (
        [int(n) for n in _list(view[name], 2)]
        for name in ("kernel_size", "stride", "padding", "dilation")
    )
    blocks = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(image, kernel, stride, padding, dilation, strict=True)
    ]
    return [[batch, channels * numel(kernel), numel(blocks)]]


def _folded(view: View) -> list[Shape]:
    batch, columns, _ = view.shape()
    size = [int(n) for n in _list(view["output_size"], 2)]
    kernel = [int(n) for n in _list(view["kernel_size"], 2)]
    return [[batch, columns // numel(kernel), *size]]


def _windows(parameters: Arguments, inputs: Arguments) -> None:
    spread_now(parameters, 2, kernel_size=None, output_size=None, dilation=1, padding=0, stride=1)


def deform_shape(view: View) -> list[Shape]:
    """Give the offsets' image with the weight's rows as channels."""
    return [[view.shape()[0], view.shape("weight")[0], *view.shape("offset")[-2:]]]


def deform_flops(view: View) -> int:
    """Count the convolution (2) and four bilinear taps (2 each) for each sampled element."""
    samples = view.shape()[1] * numel(view.shape("weight")[2:])
    pixels = view.outputs[0][0] * numel(view.outputs[0][2:])
    return 2 * view.output_elements * numel(view.shape("weight")[1:]) + 8 * samples * pixels


def fourier_flops(view: View) -> int:
    """Count 5 n log2 n for each transform of n points, the usual account of Cooley and Tukey.

    Of real points, that are given or that come back, half of it.
    """
    name, (axes, shape) = view.configuration.kind, _transformed(view)
    points = numel([shape[axis] for axis in axes])
    each = 5.0 if "rfft" not in name else 2.5
    return int(each * numel(shape) * log2(max(points, 2)))


def _transformed(view: View) -> tuple[list[int], Shape]:
    """Return the axes that are transformed, and the shape of all points that are.

    Along an axis of a length that is given the input is cut or filled up to it. What an inverse
    gives is real where it is given half a spectrum along the last axis.
    """
    shape, dims, given = view.shape(), view["dim"], view["s"] or view["n"]
    lengths = given if isinstance(given, list) else [] if given is None else [given]
    every = list(range(-len(lengths) or -len(shape), 0))
    axes = [int(n) for n in (dims if isinstance(dims, list) else every if dims is None else [dims])]
    for axis, length in zip(axes, lengths, strict=False):
        shape[axis] = int(length)
    if view.configuration.kind.startswith("irfft") and not lengths:
        shape[axes[-1]] = 2 * (shape[axes[-1]] - 1)
    return axes, shape


def _spectrum(view: View) -> list[Shape]:
    """Give the shape of all points; of a real input there is half a spectrum along the last axis.

    Its inverse fills it again.
    """
    axes, shape = _transformed(view)
    if view.configuration.kind.startswith("rfft"):
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    return [shape]


sampled = partial(broadcasting, dtype_rule=input_dtype, kernels="other", functions=NO_FUNCTION)
"""Operators of torchvision; `opdb.operators.table` names them."""

shuffled = partial(
    moved,
    nonzero_rule=goes_on,
    values_rule=same_values,
    functions="F.{0} torch.{0}",
)
register(
    moved(
        "interpolate",
        "input, size=None, scale_factor=None, mode='nearest', align_corners=None, "
        "recompute_scale_factor=None, antialias=False",
        flops_rule=interpolation_flops,
        shapes_rule=_interpolated,
        dtype_rule=input_dtype,
        # False is what None means to every mode that knows it
        canonical=chain(_for_each_axis, drop("align_corners", False)),
        functions="F.interpolate F.upsample(input, size=None, scale_factor=None, mode='nearest', "
        "align_corners=None)",
    ),
    broadcasting(
        "grid_sample",
        "input, grid, mode='bilinear', padding_mode='zeros', align_corners=False",
        flops_rule=lambda view: 8 * view.output_elements,
        shapes_rule=lambda view: [[*view.shape()[:2], *view.shape("grid")[1:-1]]],
        dtype_rule=input_dtype,
        canonical=drop("align_corners", None),  # it means False here, and warns
        functions="F.grid_sample(input, grid, mode='bilinear', padding_mode='zeros', "
        "align_corners=None)",
    ),
    broadcasting(
        "affine_grid",
        "theta, size, align_corners=False",
        flops_rule=lambda view: 6 * view.output_elements,
        shapes_rule=lambda view: [
            [int(view["size"][0]), *(int(n) for n in view["size"][2:]), len(view["size"]) - 2]
        ],
        canonical=drop("align_corners", None),  # it means False here, and warns
        functions="F.affine_grid(theta, size, align_corners=None)",
    ),
    shuffled("pixel_shuffle", "input, upscale_factor", shapes_rule=_shuffled),
    shuffled("pixel_unshuffle", "input, downscale_factor", shapes_rule=_unshuffled),
    shuffled(
        "channel_shuffle",
        "input, groups",
        shapes_rule=input_shape,
        functions=f"{PLAIN} F.channel_shuffle",
    ),
    moved(
        "unfold",
        "input, kernel_size, dilation=1, padding=0, stride=1",
        shapes_rule=_columns,
        steps_rule=_samples,
        canonical=_windows,
        functions="F.unfold",
    ),
    broadcasting(
        "fold",
        "input, output_size, kernel_size, dilation=1, padding=0, stride=1",
        shapes_rule=_folded,
        backward=LINEAR,
        canonical=_windows,
        functions="F.fold",
    ),
    sampled(
        "roi_align",
        "input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False",
        flops_rule=align_flops,
        shapes_rule=_aligned,
    ),
    sampled(
        "nms",
        "boxes, scores, iou_threshold",
        shapes_rule=lambda view: [view.shape("scores")],
        dtype_rule=index_dtype,
        backward=CONSTANT,
        waits_rule=always,
    ),
    sampled(
        "deform_conv2d",
        "input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
        "mask=None",
        flops_rule=deform_flops,
        shapes_rule=deform_shape,
        backward=product_of("input", "weight"),
        kernels="convolution",
        settings=("tf32_matmul",),
    ),
)

fourier = partial(
    broadcasting,
    spelled="input, n=None, dim=-1, norm=None",
    flops_rule=fourier_flops,
    shapes_rule=_spectrum,
    dtype_rule=complex_dtype,
    kernels="other",
    functions="fft.{0}",
)
fourier_2d = partial(fourier, spelled="input, s=None, dim=(-2, -1), norm=None")
fourier_nd = partial(fourier, spelled="input, s=None, dim=None, norm=None")
register(
    *map(fourier, ("fft", "ifft", "rfft")),
    *map(fourier_2d, ("fft2", "ifft2", "rfft2")),
    *map(fourier_nd, ("fftn", "ifftn")),
    fourier("irfft", dtype_rule=real_dtype),
    fourier_2d("irfft2", dtype_rule=real_dtype),
)
