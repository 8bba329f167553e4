"""`opdb::conv2d_forward`: a torch operator that convolves by a named algorithm; models that use it.

It runs on torch's current stream and can be captured in a CUDA graph once it ran outside one: the
first call prepares descriptors and probes the algorithm, and every call of the same shapes uses
them. It never takes another algorithm than the one named: what cannot run is
a RefusedError. The bias is added by a kernel of its own, as torch does beside cuDNN.

`swapped` gives each `nn.Conv2d` of a model another `_conv_forward`, which is taken away again at
the end: nothing else of the model changes. A layer that the algorithm cannot run keeps torch's own,
and that is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from opdb.algorithms.cudnn import ConvolutionShapes, padding_of, plan_of
from opdb.algorithms.names import DEFAULT, DIRECT, Algorithm, algorithm_named
from opdb.errors import CannotMeasureError, RefusedError

NAME = "opdb::conv2d_forward"

torch.library.define(
    NAME,
    "(Tensor input, Tensor weight, Tensor? bias, SymInt[2] stride, SymInt[2] padding, "
    "SymInt[2] dilation, SymInt groups, str algorithm) -> Tensor",
)


class ForcedCall(NamedTuple):
    """The arguments of the operator: those of torch's conv2d, pairs as (height, width), and a name.

    Calling `run` with them in this order is the way to call the operator.
    """

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    algorithm: str

    def problem(self) -> ConvolutionShapes:
        """Describe the convolution, in the layout in which torch would run it."""
        input, weight = self.input, self.weight
        if input.dim() != 4 or weight.dim() != 4:
            raise RefusedError(
                f"a convolution of an input of {input.dim()} axes with weights of "
                f"{weight.dim()}: both need four"
            )
        if input.dtype != weight.dtype:
            raise RefusedError(f"a convolution of {input.dtype} with weights of {weight.dtype}")
        return ConvolutionShapes(
            tuple(input.shape),
            tuple(weight.shape),
            tuple(self.stride),
            tuple(self.padding),
            tuple(self.dilation),
            self.groups,
            str(input.dtype).removeprefix("torch."),
            _is_channels_last(input) or _is_channels_last(weight),
            tf32_allowed(),
        )

    def ran(self) -> str:
        """Return the algorithm by which this convolution, which ran before, is run.

        It is the one that is named, or the one that cuDNN guessed.
        """
        if self.algorithm == DIRECT:
            return DIRECT
        return plan_of(self.input.device, self.problem(), self.algorithm).ran


def run(*arguments: Any) -> Tensor:
    """Convolve: the arguments are those of a `ForcedCall`, in its order."""
    made: Tensor = torch.ops.opdb.conv2d_forward.default(*arguments)
    return made


def tf32_allowed() -> bool:
    conv = getattr(torch.backends.cudnn, "conv", None)  # torch 2.9 and later
    if conv is not None:
        return bool(conv.fp32_precision == "tf32")
    return bool(torch.backends.cudnn.allow_tf32)


def layout_of(problem: ConvolutionShapes) -> torch.memory_format:
    return torch.channels_last if problem.channels_last else torch.contiguous_format


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor's layout is that and no other: of one channel or pixel it is both."""
    last = tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


def _on_cuda(*arguments: Any) -> Tensor:
    call = ForcedCall(*arguments)
    device = call.input.device
    if call.algorithm == DIRECT:
        with torch.cuda.device(device):
            return _direct(call)
    _check_forced(call.algorithm)
    problem = call.problem()
    layout = layout_of(problem)
    with torch.cuda.device(device):
        plan = plan_of(device, problem, call.algorithm)
        input, weight = (t.contiguous(memory_format=layout) for t in (call.input, call.weight))
        output = torch.empty(problem.output, dtype=input.dtype, device=device, memory_format=layout)
        plan.run(input.data_ptr(), weight.data_ptr(), output.data_ptr())
        if call.bias is not None:
            output.add_(call.bias.view(1, -1, 1, 1))
    return output


def _on_cpu(*arguments: Any) -> Tensor:
    call = ForcedCall(*arguments)
    if call.algorithm == DIRECT:
        return _direct(call)
    _check_forced(call.algorithm)
    raise CannotMeasureError(
        f"the algorithm {call.algorithm!r} is cuDNN's and needs an NVIDIA GPU; on a CPU there is "
        f"{DEFAULT!r} alone"
    )


def _direct(call: ForcedCall) -> Tensor:
    try:
        from opdb.algorithms.convolution import direct, runs_on
    except ImportError as error:
        raise CannotMeasureError(
            f"opdb's direct convolution needs Triton, which is not here: {error}"
        ) from error
    if not runs_on(call.input.device):
        raise CannotMeasureError(
            f"the algorithm {call.algorithm!r} is a kernel of opdb's own and needs a GPU; on a "
            f"CPU there is {DEFAULT!r} alone"
        )
    problem = call.problem()
    problem.check()
    return direct(problem, call.input, call.weight, call.bias)


def _check_forced(algorithm: str) -> None:
    if not algorithm_named(algorithm).is_forced:
        raise RefusedError(f"the algorithm {algorithm!r} is torch's own: call torch's conv2d")


def _fake(*arguments: Any) -> Tensor:
    call = ForcedCall(*arguments)
    problem = call.problem()
    return call.input.new_empty(problem.output).to(memory_format=layout_of(problem))


torch.library.impl(NAME, "cuda", _on_cuda)
torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.register_fake(NAME, _fake)


# a model's convolutions run by a named algorithm, for a while


OWN_FORWARD = "its class computes the convolution in a way of its own"


@dataclass
class ForcedLayer:
    """One convolution layer in a model whose convolutions are forced.

    `ran` names what runs, by the shape of the input: an algorithm, `default` where it was refused.
    `calls` counts the calls so far.
    """

    path: str
    module: nn.Conv2d
    algorithm: str
    ran: dict[tuple[int, ...], str] = field(default_factory=dict)
    refusals: dict[tuple[int, ...], RefusedError] = field(default_factory=dict)
    calls: int = 0

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        self.calls += 1
        shape = tuple(input.shape)
        if shape in self.refusals:
            return self._own(input, weight, bias)
        try:
            call = self._call(input, weight, bias)
            output = run(*call)
        except RefusedError as error:
            self.refusals[shape], self.ran[shape] = error, DEFAULT
            return self._own(input, weight, bias)
        if shape not in self.ran:
            self.ran[shape] = call.ran()
        return output if input.dim() == 4 else output.squeeze(0)

    def _own(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = nn.Conv2d._conv_forward(self.module, input, weight, bias)
        return output

    def _call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> ForcedCall:
        module = self.module
        padding = padding_of(module.padding, _pair(module.kernel_size), _pair(module.dilation))
        if module.padding_mode != "zeros":
            around = module._reversed_padding_repeated_twice
            input = nn.functional.pad(input, around, mode=module.padding_mode)
            padding = (0, 0)
        images = input if input.dim() == 4 else input.unsqueeze(0)
        return ForcedCall(
            images,
            weight,
            bias,
            module.stride,
            padding,
            module.dilation,
            module.groups,
            self.algorithm,
        )


@dataclass(frozen=True)
class Swap:
    """The convolution layers of a model that were swapped, by path, and those left, with why."""

    algorithm: Algorithm
    layers: dict[str, ForcedLayer]
    left: dict[str, str]

    @property
    def forced(self) -> list[str]:
        return [path for path, layer in self.layers.items() if layer.ran and not layer.refusals]

    @property
    def refused(self) -> dict[str, str]:
        said = {
            path: str(next(iter(layer.refusals.values())))
            for path, layer in self.layers.items()
            if layer.refusals
        }
        return said | self.left


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    high, wide = value
    return high, wide


def _is_plain(module: nn.Conv2d) -> bool:
    """Whether a module computes as `nn.Conv2d` does; a subclass may do something else."""
    kind = type(module)
    plain = nn.Conv2d
    return kind.forward is plain.forward and kind._conv_forward is plain._conv_forward


@contextmanager
def swapped(model: nn.Module, algorithm: Algorithm) -> Iterator[Swap]:
    """Run a model's convolutions by an algorithm inside the block; afterwards all is as before.

    The first pass probes every layer. `default` swaps nothing.
    """
    layers: dict[str, ForcedLayer] = {}
    left: dict[str, str] = {}
    try:
        for path, module in model.named_modules():
            if not isinstance(module, nn.Conv2d) or not algorithm.is_forced:
                continue
            if "_conv_forward" in module.__dict__ or not _is_plain(module):
                left[path] = OWN_FORWARD
                continue
            layers[path] = ForcedLayer(path, module, algorithm.name)
            module._conv_forward = layers[path]  # type: ignore[method-assign]
        yield Swap(algorithm, layers, left)
    finally:
        for layer in layers.values():
            del layer.module._conv_forward


# A plain direct convolution in Triton: every output is summed up in its place.
#
# cuDNN names a direct algorithm and never had one, so this is opdb's own, as the definition says
# it: no matrix, no transform, no tensor cores, sums in float32. It is slow, and a measure for the
# others.

TYPES = ("float32", "float16", "bfloat16")
# Outputs that one program sums up: `PIXELS` pixels of `CHANNELS` channels of one group.
PIXELS, CHANNELS = 64, 32

MOST_ELEMENTS = 2**31
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


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
    """Sum up a block of pixels and channels of one group's output."""
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


def runs_on(device: torch.device) -> bool:
    """Whether the kernel runs on a device; on a CPU it does in Triton's interpreter alone."""
    return device.type == "cuda" or _INTERPRETED


def direct(
    problem: ConvolutionShapes, input: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Convolve, the bias added in the same kernel."""
    if problem.dtype not in TYPES:
        raise RefusedError(
            f"opdb's direct convolution takes {', '.join(TYPES)}; not {problem.dtype}"
        )
    layout = torch.channels_last if problem.channels_last else torch.contiguous_format
    x, w = (t.contiguous(memory_format=layout) for t in (input, weight))
    y = torch.empty(problem.output, dtype=x.dtype, device=x.device, memory_format=layout)
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
    return y
