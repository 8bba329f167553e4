"""Convolutions by a named algorithm: cuDNN's by ctypes, or opdb's own; models that run by one.

`run` works on torch's current stream and can be captured in a CUDA graph once it ran outside one:
the first call prepares descriptors and probes the algorithm, and every call of the same shapes uses
them. It never takes another algorithm than the one named: what cannot run is a RefusedError. The
bias is added by a kernel of its own, as torch does beside cuDNN.

`swapped` gives each `nn.Conv2d` of a model another `_conv_forward`, which is taken away again at
the end: nothing else of the model changes. A layer that the algorithm cannot run keeps torch's own,
and that is recorded.

The functions of cuDNN are those of its older interface, deprecated since 9.0 and still there: it
alone lets an algorithm be named. Their arguments are declared, since ctypes else cuts 64-bit
pointers, and the order of the same arguments differs from one function to the next.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from opdb.algorithms.names import DEFAULT, DIRECT, NUMBERED, Algorithm, algorithm_named
from opdb.errors import CannotMeasureError, RefusedError

Pair: TypeAlias = tuple[int, ...]
# Shapes and steps: tuples of two or four numbers, which cuDNN itself checks.
Four: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class ConvolutionShapes:
    """A convolution's shapes and steps.

    `input` is (images, channels, height, width), `weight` (channels out, channels in of a group,
    height, width), whatever the layout in memory. `tf32` says whether float32 may be rounded to
    TF32 inside, which the other types ignore.
    """

    input: Four
    weight: Four
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    dtype: str
    channels_last: bool
    tf32: bool

    @property
    def output(self) -> Four:
        """The output's shape, an axis being floor((n + 2 p - d (k - 1) - 1) / s) + 1."""
        images, _, *sizes = self.input
        high, wide = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                sizes, self.padding, self.dilation, self.weight[2:], self.stride, strict=True
            )
        )
        return images, self.weight[0], high, wide

    def check(self) -> None:
        channels, groups = self.input[1], self.groups
        if groups < 1 or self.weight[1] * groups != channels or self.weight[0] % groups:
            raise RefusedError(
                f"a convolution of {channels} channels with weights {list(self.weight)} in "
                f"{groups} groups: they do not fit"
            )
        if min(self.input) < 1 or min(self.output) < 1:
            raise RefusedError(
                f"a convolution of {list(self.input)} with weights {list(self.weight)} has no "
                f"output: {list(self.output)}"
            )


LIBRARY = "libcudnn.so.9"

# cuDNN's numbers of the types that a convolution may have.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}

DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
_NCHW, _NHWC = 0, 1
_CROSS_CORRELATION = 1
_MOST_PROPOSALS = 8


# Statuses that say no: a bad parameter (2000 …), not supported (3000 …). Others are failures.
_REFUSALS = range(2000, 4000)


class Proposal(ctypes.Structure):
    """One answer of cuDNN's heuristic: an algorithm, whether it can run, what it needs."""

    _fields_ = (
        ("algorithm", c_int),
        ("status", c_int),
        ("time", c_float),
        ("memory", c_size_t),
        ("determinism", c_int),
        ("math", c_int),
        ("reserved", c_int * 3),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (POINTER(c_void_p),),
    "cudnnSetStream": (c_void_p, c_void_p),
    "cudnnCreateTensorDescriptor": (POINTER(c_void_p),),
    "cudnnCreateFilterDescriptor": (POINTER(c_void_p),),
    "cudnnCreateConvolutionDescriptor": (POINTER(c_void_p),),
    # descriptor, format, type, n, c, h, w
    "cudnnSetTensor4dDescriptor": (c_void_p, *[c_int] * 6),
    # descriptor, type, format, k, c of a group, r, s
    "cudnnSetFilter4dDescriptor": (c_void_p, *[c_int] * 6),
    # descriptor, padding, stride, dilation (height first), mode, type computed in
    "cudnnSetConvolution2dDescriptor": (c_void_p, *[c_int] * 8),
    "cudnnSetConvolutionGroupCount": (c_void_p, c_int),
    "cudnnSetConvolutionMathType": (c_void_p, c_int),
    # handle, input, weight, convolution, output, algorithm, bytes
    "cudnnGetConvolutionForwardWorkspaceSize": (*[c_void_p] * 5, c_int, POINTER(c_size_t)),
    # handle, input, weight, convolution, output, wanted, found, proposals
    "cudnnGetConvolutionForwardAlgorithm_v7": (
        *[c_void_p] * 5,
        c_int,
        POINTER(c_int),
        POINTER(Proposal),
    ),
    # handle, alpha, input twice, weight twice, convolution, algorithm, workspace, its bytes, beta,
    # output twice
    "cudnnConvolutionForward": (*[c_void_p] * 7, c_int, c_void_p, c_size_t, *[c_void_p] * 3),
}


class Cudnn:
    """cuDNN's library, its functions declared; a status other than success is an error."""

    def __init__(self, name: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(name)
            self._functions = {each: self._declared(each) for each in _FUNCTIONS}
            self._words = self._library.cudnnGetErrorString
        except (OSError, AttributeError) as error:
            raise CannotMeasureError(
                f"cuDNN 9 cannot be used here, so no algorithm of it can be forced: {error}; "
                "install a torch built with CUDA, or use the algorithms default and direct"
            ) from error
        self._words.restype, self._words.argtypes = c_char_p, (c_int,)

    def _declared(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)
        function.restype, function.argtypes = c_int, _FUNCTIONS[name]
        return function  # type: ignore[no-any-return]

    def call(self, name: str, *arguments: Any) -> None:
        status = self._functions[name](*arguments)
        if status:
            said = f"{name}: {self._words(status).decode()} ({status})"
            raise RefusedError(said) if status in _REFUSALS else RuntimeError(said)


@cache
def cudnn() -> Cudnn:
    return Cudnn()


def math_of(problem: ConvolutionShapes) -> int:
    """Return the arithmetic that torch, too, lets cuDNN use for a type (Conv_v7.cpp)."""
    if problem.dtype == "float16":
        return TENSOR_OP_MATH
    if problem.dtype == "float32" and not problem.tf32:
        return FMA_MATH
    return DEFAULT_MATH


class Plan:
    """One convolution by one algorithm on a device: all that a call needs but its tensors.

    `ran` is the name of the algorithm that runs: the one asked for, or the one that was guessed.
    Scratch memory is the caching allocator's, as torch's own convolutions take it.
    """

    def __init__(self, device: torch.device, problem: ConvolutionShapes, algorithm: str) -> None:
        self._library, self._device = cudnn(), device
        self._handle = handle_of(device)
        self._four = self._described(problem)
        self._number = self._chosen(problem, algorithm)
        size = c_size_t()
        self._library.call(
            "cudnnGetConvolutionForwardWorkspaceSize",
            self._handle,
            *self._four,
            self._number,
            ctypes.byref(size),
        )
        self.workspace_bytes = int(size.value)
        self.ran = NUMBERED.get(self._number, f"cuDNN's algorithm {self._number}")
        scalar = c_double if problem.dtype == "float64" else c_float
        self._one, self._zero = scalar(1.0), scalar(0.0)

    def _described(self, problem: ConvolutionShapes) -> list[c_void_p]:
        """Return the descriptors of input, weight, convolution and output, which live on."""
        if problem.dtype not in TYPES:
            raise RefusedError(f"cuDNN convolves {', '.join(TYPES)}; not {problem.dtype}")
        four = [c_void_p() for _ in range(4)]
        for made, what in zip(four, ("Tensor", "Filter", "Convolution", "Tensor"), strict=True):
            self._library.call(f"cudnnCreate{what}Descriptor", ctypes.byref(made))
        input, weight, convolution, output = four
        number = TYPES[problem.dtype]
        layout = _NHWC if problem.channels_last else _NCHW
        computed_in = TYPES["float64" if problem.dtype == "float64" else "float32"]
        call = self._library.call
        call("cudnnSetTensor4dDescriptor", input, layout, number, *problem.input)
        call("cudnnSetFilter4dDescriptor", weight, number, layout, *problem.weight)
        call(
            "cudnnSetConvolution2dDescriptor",
            convolution,
            *problem.padding,
            *problem.stride,
            *problem.dilation,
            _CROSS_CORRELATION,
            computed_in,
        )
        call("cudnnSetConvolutionGroupCount", convolution, problem.groups)
        call("cudnnSetConvolutionMathType", convolution, math_of(problem))
        call("cudnnSetTensor4dDescriptor", output, layout, number, *problem.output)
        return four

    def _chosen(self, problem: ConvolutionShapes, algorithm: str) -> int:
        """Return the algorithm's number, or that of the first that cuDNN's heuristic says can run.

        A guess comes with the arithmetic that it is for.
        """
        number = algorithm_named(algorithm).number
        if number is not None:
            return number
        call, four = self._library.call, self._four
        found, proposals = c_int(), (Proposal * _MOST_PROPOSALS)()
        name = "cudnnGetConvolutionForwardAlgorithm_v7"
        call(name, self._handle, *four, _MOST_PROPOSALS, ctypes.byref(found), proposals)
        first = next((each for each in proposals[: found.value] if not each.status), None)
        if first is None:
            raise RefusedError("cuDNN's heuristic names no algorithm that can run this convolution")
        if math_of(problem) != FMA_MATH:
            call("cudnnSetConvolutionMathType", four[2], first.math)
        return int(first.algorithm)

    def run(self, input_pointer: int, weight_pointer: int, output_pointer: int) -> None:
        """Convolve on torch's current stream."""
        library = self._library
        input, weight, convolution, output = self._four
        stream = torch.cuda.current_stream(self._device).cuda_stream
        library.call("cudnnSetStream", self._handle, stream)
        workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=self._device)
        library.call(
            "cudnnConvolutionForward",
            self._handle,
            ctypes.byref(self._one),
            input,
            input_pointer,
            weight,
            weight_pointer,
            convolution,
            self._number,
            workspace.data_ptr(),
            self.workspace_bytes,
            ctypes.byref(self._zero),
            output,
            output_pointer,
        )


@cache
def handle_of(device: torch.device) -> c_void_p:
    handle = c_void_p()
    with torch.cuda.device(device):
        cudnn().call("cudnnCreate", ctypes.byref(handle))
    return handle


# The plan of a convolution, made the first time: what is refused is asked again.
plan_of = cache(Plan)


class ForcedCall(NamedTuple):
    """The arguments of torch's conv2d, pairs as (height, width), and the name of an algorithm."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    algorithm: str

    def problem(self) -> ConvolutionShapes:
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


def forced_call(
    algorithm: str,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> ForcedCall:
    steps = _pair(dilation)
    around = tuple(d * (k - 1) for k, d in zip(weight.shape[2:], steps, strict=True))
    if not isinstance(padding, str):
        around = tuple(2 * p for p in _pair(padding))
    elif padding == "valid":
        around = 0, 0
    if any(total % 2 for total in around):
        raise RefusedError(
            f"padding 'same' of a {weight.shape[2]}x{weight.shape[3]} kernel with dilation "
            f"{steps[0]}, {steps[1]} is not the same on both sides; cuDNN and opdb's direct "
            "convolution pad both sides alike"
        )
    padded = around[0] // 2, around[1] // 2
    return ForcedCall(input, weight, bias, _pair(stride), padded, steps, groups, algorithm)


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(value, int):
        return value, value
    return tuple(value) * (2 // len(value))


@torch.no_grad()
def run(call: ForcedCall) -> Tensor:
    """Convolve on a GPU; Triton's interpreter takes `direct` on a CPU, too."""
    problem = call.problem()
    problem.check()
    layout = torch.channels_last if problem.channels_last else torch.contiguous_format
    input, weight = (t.contiguous(memory_format=layout) for t in (call.input, call.weight))
    device, dtype = input.device, input.dtype
    output = torch.empty(problem.output, dtype=dtype, device=device, memory_format=layout)
    with torch.cuda.device_of(input):
        if call.algorithm == DIRECT:
            from opdb.algorithms.direct import direct  # not every torch comes with Triton

            direct(problem, input, weight, call.bias, output)
            return output
        plan = plan_of(device, problem, call.algorithm)
        plan.run(input.data_ptr(), weight.data_ptr(), output.data_ptr())
        if call.bias is not None:
            output.add_(call.bias.view(1, -1, 1, 1))
    return output


def tf32_allowed() -> bool:
    backend: Any = torch.backends.cudnn
    return bool(backend.conv.fp32_precision == "tf32")


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor's layout is that and no other: of one channel or pixel it is both."""
    last = tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


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
        if shape not in self.refusals:
            try:
                return self._forced(input, weight, bias)
            except RefusedError as error:
                self.refusals[shape], self.ran[shape] = error, DEFAULT
        own: Tensor = nn.Conv2d._conv_forward(self.module, input, weight, bias)
        return own

    def _forced(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        module = self.module
        padding: str | tuple[int, ...] = module.padding
        images = input if input.dim() == 4 else input.unsqueeze(0)
        if module.padding_mode != "zeros":
            around = module._reversed_padding_repeated_twice
            images = nn.functional.pad(images, around, mode=module.padding_mode)
            padding = (0, 0)
        windows = (module.stride, padding, module.dilation, module.groups)
        call = forced_call(self.algorithm, images, weight, bias, *windows)
        output = run(call)
        shape = tuple(input.shape)
        if shape not in self.ran:
            self.ran[shape] = call.ran()
        return output if input.dim() == 4 else output.squeeze(0)


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


def _is_plain(module: nn.Conv2d) -> bool:
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
