"""Pools, interpolation, sampling, detection, and Fourier transforms."""

from __future__ import annotations

from functools import partial
from math import ceil, log2

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR,
    NO_FUNCTION,
    ONCE,
    PLAIN,
    JsonArguments,
    averaged,
    broadcasting,
    chain,
    dense,
    drop,
    goes_on,
    moved,
    product_of,
    spread,
    unchanged,
)
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import Shape, View
from opdb.records import Json


def _interpolated(view: View) -> list[Shape]:
    shape, factors = view.shape(), view["scale_factor"]
    rank = len(shape) - 2
    if view["size"] is not None:
        return [[*shape[:2], *v.entries(view["size"], rank)]]
    each = factors if isinstance(factors, list) else [factors] * rank
    return [[*shape[:2], *(int(n * f) for n, f in zip(shape[2:], each, strict=True))]]


def interpolation_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element and each input element it weighs."""
    taps = {"nearest": 0, "nearest-exact": 0, "area": 1, "linear": 2, "bilinear": 4}
    more = {"bicubic": 16, "trilinear": 8}
    return 2 * view.output_elements * (taps | more).get(str(view["mode"]), 1)


def _for_each_axis(parameters: JsonArguments, inputs: JsonArguments) -> None:
    spec = inputs.get("input")
    if v.is_spec(spec):
        spread(parameters, inputs, rank=len(spec["shape"]) - 2, size=None, scale_factor=None)


def _aligned(view: View) -> list[Shape]:
    count = sum(int(box["shape"][0]) for box in view.specs("boxes"))
    return [[count, view.shape()[1], *v.entries(view["output_size"], 2)]]


def align_flops(view: View) -> int:
    """Count four bilinear taps (2 each) for each sample; an adaptive ratio is taken as 2."""
    ratio = int(view["sampling_ratio"]) if int(view["sampling_ratio"] or -1) > 0 else 2
    return 8 * ratio**2 * view.output_elements


def _columns(view: View) -> list[Shape]:
    batch, channels, *image = view.shape()
    names = ("kernel_size", "stride", "padding", "dilation")
    kernel, *steps = (v.entries(view[name], 2) for name in names)
    return [[batch, channels * v.numel(kernel), *v.slid(image, kernel, *steps)]]


def _folded(view: View) -> list[Shape]:
    batch, columns, _ = view.shape()
    kernel = v.entries(view["kernel_size"], 2)
    return [[batch, columns // v.numel(kernel), *v.entries(view["output_size"], 2)]]


_windows = partial(
    spread, rank=2, kernel_size=None, output_size=None, dilation=1, padding=0, stride=1
)


def deform_flops(view: View) -> int:
    """Count the convolution (2) and four bilinear taps (2 each) for each sampled element."""
    samples = view.shape()[1] * v.numel(view.shape("weight")[2:])
    pixels = view.outputs[0][0] * v.numel(view.outputs[0][2:])
    return 2 * view.output_elements * v.numel(view.shape("weight")[1:]) + 8 * samples * pixels


def fourier_flops(view: View) -> int:
    """Count 5 n log2 n for each transform of n points, the usual account of Cooley and Tukey.

    Of real points, that are given or that come back, half of it.
    """
    name, (axes, shape) = view.configuration.kind, _transformed(view)
    points = v.numel([shape[axis] for axis in axes])
    each = 5.0 if "rfft" not in name else 2.5
    return int(each * v.numel(shape) * log2(max(points, 2)))


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


# Operators of torchvision; `opdb.operators.functions` names them.
sampled = partial(broadcasting, dtype_rule=v.input_dtype, functions=NO_FUNCTION)

shuffled = partial(
    moved, shapes_rule=v.input_shape, nonzero_rule=goes_on, values_rule=v.same_values
)
register(
    moved(
        "interpolate",
        "input, size=None, scale_factor=None, mode='nearest', align_corners=None, "
        "recompute_scale_factor=None, antialias=False",
        flops_rule=interpolation_flops,
        shapes_rule=_interpolated,
        dtype_rule=v.input_dtype,
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
        dtype_rule=v.input_dtype,
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
    shuffled(
        "pixel_shuffle",
        "input, upscale_factor",
        functions="F.{0} torch.{0} nn.PixelShuffle",
    ),
    shuffled(
        "pixel_unshuffle",
        "input, downscale_factor",
        functions="F.{0} torch.{0} nn.PixelUnshuffle",
    ),
    shuffled(
        "channel_shuffle",
        "input, groups",
        functions=f"{PLAIN} F.channel_shuffle nn.ChannelShuffle",
    ),
    moved(
        "unfold",
        "input, kernel_size, dilation=1, padding=0, stride=1",
        shapes_rule=_columns,
        # the samples of a batch: a kernel takes one (aten/src/ATen/native/cuda/Im2Col.cu)
        steps_rule=lambda view: view.shape()[0],
        canonical=_windows,
        functions="F.unfold nn.Unfold",
    ),
    broadcasting(
        "fold",
        "input, output_size, kernel_size, dilation=1, padding=0, stride=1",
        shapes_rule=_folded,
        backward=LINEAR,
        canonical=_windows,
        functions="F.fold nn.Fold",
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
        dtype_rule=v.index_dtype,
        backward=CONSTANT,
        waits_rule=v.always,
    ),
    sampled(
        "deform_conv2d",
        "input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
        "mask=None",
        flops_rule=deform_flops,
        # the offsets' image with the weight's rows as channels
        shapes_rule=lambda view: [
            [view.shape()[0], view.shape("weight")[0], *view.shape("offset")[-2:]]
        ],
        backward=product_of("input", "weight"),
        settings=("tf32_matmul",),
    ),
)

fourier = partial(
    broadcasting,
    spelled="input, n=None, dim=-1, norm=None",
    flops_rule=fourier_flops,
    shapes_rule=_spectrum,
    dtype_rule=v.complex_dtype,
    functions="fft.{0}",
)
fourier_2d = partial(fourier, spelled="input, s=None, dim=(-2, -1), norm=None")
fourier_nd = partial(fourier, spelled="input, s=None, dim=None, norm=None")
register(
    *map(fourier, ("fft", "ifft", "rfft")),
    *map(fourier_2d, ("fft2", "ifft2", "rfft2")),
    *map(fourier_nd, ("fftn", "ifftn")),
    fourier("irfft", dtype_rule=v.real_dtype),
    fourier_2d("irfft2", dtype_rule=v.real_dtype),
)


# pools


def pool_shape(view: View) -> list[Shape]:
    """Give the places of windows that slide: as a convolution's, ceil where asked."""
    shape, kernel, ceiled = view.shape(), view["kernel_size"], view["ceil_mode"]
    rank = _rank(kernel)
    windows = (kernel, view["stride"] or kernel, view["padding"] or 0, view["dilation"] or 1)
    each = zip(shape[-rank:], *(v.entries(n, rank) for n in windows), strict=True)
    axes = []
    for size, window, stride, padding, dilation in each:
        span = size + 2 * padding - dilation * (window - 1) - 1
        out = (ceil(span / stride) if ceiled else span // stride) + 1
        # a window must start inside the input or its left padding
        beyond = ceiled and (out - 1) * stride >= size + padding
        axes.append(out - 1 if beyond else out)
    return [[*shape[:-rank], *axes]] * (2 if view["return_indices"] else 1)


def _rank(window: Json) -> int:
    return len(window) if isinstance(window, list) else 1


def adaptive_shape(view: View) -> list[Shape]:
    """Give the size that is asked for; None keeps the input's."""
    shape, given = view.shape(), view["output_size"]
    rank = _rank(given)
    sizes = given if isinstance(given, list) else [given]
    axes = [old if new is None else new for old, new in zip(shape[-rank:], sizes, strict=True)]
    return [[*shape[:-rank], *axes]] * (2 if view["return_indices"] else 1)


def window_flops(view: View) -> int:
    """Count one operation for each output element and each entry of its window.

    A window larger than its input with its padding has no more entries than these.
    """
    kernel, shape = view["kernel_size"], view.shape()
    rank = _rank(kernel)
    windows = (v.entries(kernel, rank), v.entries(view["padding"] or 0, rank))
    each = zip(shape[-rank:], *windows, strict=True)
    return v.numel(view.outputs[0]) * v.numel([min(n, size + 2 * p) for size, n, p in each])


def adaptive_flops(view: View) -> int:
    """Count one operation for each input element, or output element where there are more."""
    return max(v.numel(view.shape()), v.numel(view.outputs[0]))


def _window(rank: int) -> Canonical:
    spreading = partial(spread, rank=rank, kernel_size=None, stride=None, padding=0, dilation=1)
    return chain(spreading, _own_stride)


def _own_stride(parameters: JsonArguments, inputs: JsonArguments) -> None:
    # torch's rule: no stride is the window's size
    if parameters.get("stride") in ([], parameters.get("kernel_size")):
        parameters.pop("stride", None)


def _single_window(parameters: JsonArguments, inputs: JsonArguments) -> None:
    # torch computes with this window's size, which must stay a number
    for name in ("kernel_size", "stride"):
        value = parameters.get(name)
        if isinstance(value, list) and len(value) == 1:
            parameters[name] = value[0]
    _own_stride(parameters, inputs)


def _adaptive(rank: int) -> Canonical:
    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        value = parameters.get("output_size")
        if not isinstance(value, list):
            value = [value] * rank
        parameters["output_size"] = value * rank if len(value) == 1 else value

    return rewrite


# A window that slides over the last dimensions, for one output in each place.
pool = partial(
    Kind,
    flops_rule=window_flops,
    bytes_rule=v.inputs_and_outputs,
    dtype_rule=v.input_dtype,
    backward=ONCE,
    nonzero_rule=goes_on,
    functions="F.{0}",
    then_indices=True,
    values_rule=v.kept_rectified,
)

# A pool whose output has a given size.
adaptive = partial(pool, flops_rule=adaptive_flops)

_MAX = "padding=0, dilation=1, ceil_mode=False"
_AVERAGE = "padding=0, ceil_mode=False, count_include_pad=True"
for _n in (1, 2, 3):
    _divisor = "" if _n == 1 else ", divisor_override=None"
    _sliding = partial(pool, shapes_rule=pool_shape, canonical=_window(_n))
    _sized = partial(adaptive, shapes_rule=adaptive_shape, canonical=_adaptive(_n))
    register(
        _sliding(
            f"max_pool{_n}d",
            f"input, kernel_size, stride=None, {_MAX}, return_indices=False",
            functions=f"F.{{0}} torch.{{0}}(input, kernel_size, stride=None, {_MAX}) "
            f"F.{{0}}_with_indices(input, kernel_size, stride=None, {_MAX}, return_indices=True) "
            f"nn.MaxPool{_n}d",
        ),
        _sliding(
            f"avg_pool{_n}d",
            f"input, kernel_size, stride=None, {_AVERAGE}{_divisor}",
            backward=LINEAR,
            nonzero_rule=averaged,
            functions=f"F.{{0}} nn.AvgPool{_n}d",
        ),
        _sized(
            f"adaptive_avg_pool{_n}d",
            "input, output_size",
            backward=LINEAR,
            nonzero_rule=unchanged,
            functions=f"F.{{0}} torch.{{0}} nn.AdaptiveAvgPool{_n}d",
        ),
        _sized(
            f"adaptive_max_pool{_n}d",
            "input, output_size, return_indices=False",
            functions="F.{0} F.{0}_with_indices(input, output_size, return_indices=True) "
            f"nn.AdaptiveMaxPool{_n}d",
        ),
        _sliding(
            f"lp_pool{_n}d",
            "input, norm_type, kernel_size, stride=None, ceil_mode=False",
            dtype_rule=v.promoted_dtype,
            nonzero_rule=dense,
            then_indices=False,
            values_rule=v.no_values,
            functions=f"F.{{0}} nn.LPPool{_n}d",
            canonical=_window(_n) if _n > 1 else _single_window,
        ),
    )
