"""cuDNN's forward convolution by ctypes: its functions and descriptors, and plans of convolutions.

The functions are those of cuDNN's older interface, deprecated since 9.0 and still there: it alone
lets an algorithm be named. Their arguments are declared, since ctypes else cuts 64-bit pointers,
and the order of the same arguments differs from one function to the next.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

from opdb.algorithms.names import algorithm_named, numbered
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


def padding_of(padding: str | tuple[int, ...], kernel: Pair, dilation: Pair) -> Pair:
    """Return the padding at each side of both axes, spelled as torch does."""
    if padding == "valid":
        return 0, 0
    if padding != "same":
        high, wide = (int(p) for p in padding)
        return high, wide
    around = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(total % 2 for total in around):
        raise RefusedError(
            f"padding 'same' of a {kernel[0]}x{kernel[1]} kernel with dilation {dilation[0]}, "
            f"{dilation[1]} is not the same on both sides; cuDNN and opdb's direct "
            "convolution pad both sides alike"
        )
    return around[0] // 2, around[1] // 2


LIBRARY = "libcudnn.so.9"

# cuDNN's numbers of the types that a convolution may have.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}

DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
_NCHW, _NHWC = 0, 1
_CROSS_CORRELATION = 1
_MOST_PROPOSALS = 8


# Statuses that say no: a bad parameter (2000 …), not supported (3000 …). Others are failures.
_REFUSALS = range(2000, 4000)


class CudnnError(RuntimeError):
    """cuDNN failed at what it had agreed to do."""


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
    "cudnnDestroyTensorDescriptor": (c_void_p,),
    "cudnnCreateFilterDescriptor": (POINTER(c_void_p),),
    "cudnnDestroyFilterDescriptor": (c_void_p,),
    "cudnnCreateConvolutionDescriptor": (POINTER(c_void_p),),
    "cudnnDestroyConvolutionDescriptor": (c_void_p,),
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
        """Load the library, which torch has loaded before where it is one built with CUDA."""
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

    def status_words(self, status: int) -> str:
        return f"{self._words(status).decode()} ({status})"

    def call(self, name: str, *arguments: Any) -> None:
        self.check(name, self._functions[name](*arguments))

    def check(self, name: str, status: int) -> None:
        if not status:
            return
        said = f"{name}: {self.status_words(status)}"
        if status in _REFUSALS:
            raise RefusedError(said, status=status)
        raise CudnnError(said)


@cache
def cudnn() -> Cudnn:
    return Cudnn()


class Descriptors:
    """One convolution as cuDNN takes it; needs no GPU."""

    def __init__(self, library: Cudnn, problem: ConvolutionShapes) -> None:
        if problem.dtype not in TYPES:
            raise RefusedError(f"cuDNN convolves {', '.join(TYPES)}; not {problem.dtype}")
        self._library = library
        self.input = self._made("Tensor")
        self.weight = self._made("Filter")
        self.convolution = self._made("Convolution")
        self.output = self._made("Tensor")
        number = TYPES[problem.dtype]
        layout = _NHWC if problem.channels_last else _NCHW
        computed_in = TYPES["float64" if problem.dtype == "float64" else "float32"]
        call = library.call
        call("cudnnSetTensor4dDescriptor", self.input, layout, number, *problem.input)
        call("cudnnSetFilter4dDescriptor", self.weight, number, layout, *problem.weight)
        call(
            "cudnnSetConvolution2dDescriptor",
            self.convolution,
            *problem.padding,
            *problem.stride,
            *problem.dilation,
            _CROSS_CORRELATION,
            computed_in,
        )
        call("cudnnSetConvolutionGroupCount", self.convolution, problem.groups)
        call("cudnnSetConvolutionMathType", self.convolution, math_of(problem))
        call("cudnnSetTensor4dDescriptor", self.output, layout, number, *problem.output)

    def _made(self, what: str) -> c_void_p:
        made = c_void_p()
        self._library.call(f"cudnnCreate{what}Descriptor", ctypes.byref(made))
        destroy = f"cudnnDestroy{what}Descriptor"
        weakref.finalize(self, self._library.call, destroy, made).atexit = False
        return made

    def four(self) -> tuple[c_void_p, c_void_p, c_void_p, c_void_p]:
        return self.input, self.weight, self.convolution, self.output


def math_of(problem: ConvolutionShapes) -> int:
    """Return the arithmetic that torch, too, lets cuDNN use for a type (Conv_v7.cpp)."""
    if problem.dtype == "float16":
        return TENSOR_OP_MATH
    if problem.dtype == "float32" and not problem.tf32:
        return FMA_MATH
    return DEFAULT_MATH


def proposed(library: Cudnn, handle: c_void_p, descriptors: Descriptors) -> Proposal:
    """Return what cuDNN's heuristic names first of all that it says can run."""
    found, proposals = c_int(), (Proposal * _MOST_PROPOSALS)()
    library.call(
        "cudnnGetConvolutionForwardAlgorithm_v7",
        handle,
        *descriptors.four(),
        _MOST_PROPOSALS,
        ctypes.byref(found),
        proposals,
    )
    able = [proposal for proposal in proposals[: found.value] if not proposal.status]
    if not able:
        raise RefusedError("cuDNN's heuristic names no algorithm that can run this convolution")
    return able[0]


class Plan:
    """One convolution by one algorithm on a device: all that a call needs but its tensors.

    `ran` is the name of the algorithm that runs: the one asked for, or the one that was guessed.
    Scratch memory is the caching allocator's, as torch's own convolutions take it.
    """

    def __init__(self, device: torch.device, problem: ConvolutionShapes, algorithm: str) -> None:
        problem.check()
        self._library, self._device = cudnn(), device
        self._handle = handle_of(device)
        self._descriptors = Descriptors(self._library, problem)
        self._number = self._chosen(problem, algorithm)
        size = c_size_t()
        self._library.call(
            "cudnnGetConvolutionForwardWorkspaceSize",
            self._handle,
            *self._descriptors.four(),
            self._number,
            ctypes.byref(size),
        )
        self.workspace_bytes = int(size.value)
        self.ran = numbered(self._number)
        scalar = c_double if problem.dtype == "float64" else c_float
        self._one, self._zero = scalar(1.0), scalar(0.0)

    def _chosen(self, problem: ConvolutionShapes, algorithm: str) -> int:
        number = algorithm_named(algorithm).number
        if number is not None:
            return number
        found = proposed(self._library, self._handle, self._descriptors)
        if math_of(problem) != FMA_MATH:
            convolution = self._descriptors.convolution
            self._library.call("cudnnSetConvolutionMathType", convolution, found.math)
        return int(found.algorithm)

    def run(self, input_pointer: int, weight_pointer: int, output_pointer: int) -> None:
        """Convolve on torch's current stream."""
        library, descriptors = self._library, self._descriptors
        stream = torch.cuda.current_stream(self._device).cuda_stream
        library.call("cudnnSetStream", self._handle, stream)
        workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=self._device)
        library.call(
            "cudnnConvolutionForward",
            self._handle,
            ctypes.byref(self._one),
            descriptors.input,
            input_pointer,
            descriptors.weight,
            weight_pointer,
            descriptors.convolution,
            self._number,
            workspace.data_ptr(),
            self.workspace_bytes,
            ctypes.byref(self._zero),
            descriptors.output,
            output_pointer,
        )


@cache
def handle_of(device: torch.device) -> c_void_p:
    handle = c_void_p()
    with torch.cuda.device(device):
        cudnn().call("cudnnCreate", ctypes.byref(handle))
    return handle


@cache
def plan_of(device: torch.device, problem: ConvolutionShapes, algorithm: str) -> Plan:
    """Return the plan of a convolution, made the first time: what is refused is asked again."""
    return Plan(device, problem, algorithm)
