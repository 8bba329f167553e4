"""cuDNN's forward convolution by ctypes: its functions and descriptors, and plans of convolutions.

The functions are those of cuDNN's older interface, deprecated since 9.0 and still there: it alone
lets an algorithm be named. Their arguments are declared, since ctypes else cuts 64-bit pointers,
and the order of the same arguments differs from one function to the next.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

from opdb.algorithms.names import algorithm_named, numbered
from opdb.capturing import is_capturing
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


_INT_POINTER = POINTER(c_int)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (POINTER(c_void_p),),
    "cudnnDestroy": (c_void_p,),
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
    "cudnnGetConvolution2dForwardOutputDim": (*[c_void_p] * 3, *[_INT_POINTER] * 4),
    # handle, input, weight, convolution, output, algorithm, bytes
    "cudnnGetConvolutionForwardWorkspaceSize": (*[c_void_p] * 5, c_int, POINTER(c_size_t)),
    # handle, input, weight, convolution, output, wanted, found, proposals
    "cudnnGetConvolutionForwardAlgorithm_v7": (
        *[c_void_p] * 5,
        c_int,
        _INT_POINTER,
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
            self.version = int(self._library.cudnnGetVersion())
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

    def forward(self) -> Callable[..., int]:
        """Return the convolution itself, to be called without a detour; it returns a status."""
        return self._functions["cudnnConvolutionForward"]


@cache
def cudnn() -> Cudnn:
    return Cudnn()


class Descriptors:
    """One convolution as cuDNN takes it; needs no GPU. `close` gives the descriptors back."""

    def __init__(self, library: Cudnn, problem: ConvolutionShapes) -> None:
        if problem.dtype not in TYPES:
            raise RefusedError(f"cuDNN convolves {', '.join(TYPES)}; not {problem.dtype}")
        self._library = library
        self._destroyers: list[tuple[str, c_void_p]] = []
        try:
            self.input = self._made("Tensor")
            self.weight = self._made("Filter")
            self.convolution = self._made("ConvolutionShapes")
            self.output = self._made("Tensor")
            self._describe(problem)
        except RefusedError:
            self.close()
            raise

    def _made(self, what: str) -> c_void_p:
        made = c_void_p()
        self._library.call(f"cudnnCreate{what}Descriptor", ctypes.byref(made))
        self._destroyers.append((f"cudnnDestroy{what}Descriptor", made))
        return made

    def _describe(self, problem: ConvolutionShapes) -> None:
        number = TYPES[problem.dtype]
        layout = _NHWC if problem.channels_last else _NCHW
        call = self._library.call
        call("cudnnSetTensor4dDescriptor", self.input, layout, number, *problem.input)
        call("cudnnSetFilter4dDescriptor", self.weight, number, layout, *problem.weight)
        computed_in = TYPES["float64" if problem.dtype == "float64" else "float32"]
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
        self.set_math(math_of(problem))
        call("cudnnSetTensor4dDescriptor", self.output, layout, number, *self.output_shape())

    def set_math(self, math: int) -> None:
        self._library.call("cudnnSetConvolutionMathType", self.convolution, math)

    def output_shape(self) -> Four:
        """Return the output's shape (images, channels, height, width) as cuDNN computes it."""
        sizes = [c_int() for _ in range(4)]
        pointers = [ctypes.byref(size) for size in sizes]
        self._library.call(
            "cudnnGetConvolution2dForwardOutputDim",
            self.convolution,
            self.input,
            self.weight,
            *pointers,
        )
        images, channels, high, wide = (size.value for size in sizes)
        return images, channels, high, wide

    def four(self) -> tuple[c_void_p, c_void_p, c_void_p, c_void_p]:
        return self.input, self.weight, self.convolution, self.output

    def close(self) -> None:
        while self._destroyers:
            name, made = self._destroyers.pop()
            self._library.call(name, made)


def math_of(problem: ConvolutionShapes) -> int:
    """Return the arithmetic that torch, too, lets cuDNN use for a type (Conv_v7.cpp)."""
    if problem.dtype == "float16":
        return TENSOR_OP_MATH
    if problem.dtype == "float32" and not problem.tf32:
        return FMA_MATH
    return DEFAULT_MATH


def scalar(dtype: str, value: float) -> ctypes.c_float | ctypes.c_double:
    return c_double(value) if dtype == "float64" else c_float(value)


def workspace_bytes(library: Cudnn, handle: c_void_p, descriptors: Descriptors, number: int) -> int:
    """Return the bytes that an algorithm (cuDNN's number) needs beside the tensors."""
    size = c_size_t()
    library.call(
        "cudnnGetConvolutionForwardWorkspaceSize",
        handle,
        *descriptors.four(),
        number,
        ctypes.byref(size),
    )
    return int(size.value)


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


class Workspace:
    """One device's scratch memory, as large as the largest convolution prepared so far needs.

    Convolutions on several streams are put in order. Those inside a CUDA graph are ordered by
    whoever replays the graph; what a graph has captured is kept until `clear`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = self._made(0)
        self._captured: list[torch.Tensor] = []
        self._last: torch.cuda.Stream | None = None

    def reserve(self, size_bytes: int) -> None:
        if size_bytes <= self._memory.nbytes:
            return
        torch.cuda.synchronize(self._device)  # nothing may still be using what is given back
        before = self._memory.nbytes
        self._memory = self._made(0)
        try:
            self._memory = self._made(size_bytes)
        except torch.OutOfMemoryError:
            self._memory = self._made(before)  # what was prepared earlier still needs it
            raise

    def _made(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def pointer(self, stream: torch.cuda.Stream, *, capturing: bool) -> int:
        """Return where the memory is, for work that is issued on this stream next."""
        if capturing:
            if not any(kept is self._memory for kept in self._captured):
                self._captured.append(self._memory)
        elif self._last is None:
            self._last = stream
        elif self._last != stream:
            stream.wait_stream(self._last)
            self._last = stream
        return self._memory.data_ptr()

    def clear(self) -> None:
        """Give the memory back; no graph that captured it may be replayed after."""
        torch.cuda.synchronize(self._device)
        self._captured.clear()
        self._memory = self._made(0)
        self._last = None


class Plan:
    """One convolution by one algorithm, ready to run: all that a call needs but the pointers.

    `ran` is the name of the algorithm that runs: the one asked for, or the one that was guessed.
    """

    def __init__(self, planner: Planner, problem: ConvolutionShapes, algorithm: str) -> None:
        problem.check()
        self._planner = planner
        self._descriptors = Descriptors(planner.library, problem)
        try:
            self._number = self._chosen(problem, algorithm)
            self.workspace_bytes = workspace_bytes(
                planner.library, planner.handle, self._descriptors, self._number
            )
            planner.workspace.reserve(self.workspace_bytes)
        except (RefusedError, RuntimeError):
            self._descriptors.close()
            raise
        self.ran = numbered(self._number)
        self.output_shape = problem.output
        self._one = scalar(problem.dtype, 1.0)
        self._zero = scalar(problem.dtype, 0.0)
        self._factors = ctypes.byref(self._one), ctypes.byref(self._zero)
        self._forward = planner.library.forward()

    def _chosen(self, problem: ConvolutionShapes, algorithm: str) -> int:
        number = algorithm_named(algorithm).number
        if number is not None:
            return number
        found = proposed(self._planner.library, self._planner.handle, self._descriptors)
        if math_of(problem) != FMA_MATH:
            self._descriptors.set_math(found.math)
        return int(found.algorithm)

    def run(self, input_pointer: int, weight_pointer: int, output_pointer: int) -> None:
        planner, descriptors = self._planner, self._descriptors
        one, zero = self._factors
        status = self._forward(
            planner.handle,
            one,
            descriptors.input,
            input_pointer,
            descriptors.weight,
            weight_pointer,
            descriptors.convolution,
            self._number,
            planner.workspace_on_current_stream(),
            self.workspace_bytes,
            zero,
            descriptors.output,
            output_pointer,
        )
        planner.library.check("cudnnConvolutionForward", status)

    def close(self) -> None:
        self._descriptors.close()


class Planner:
    """One device's plans, its cuDNN handle, and the workspace that the plans share.

    What was refused is remembered too, so that no configuration is probed twice.
    """

    def __init__(self, device: torch.device) -> None:
        self.library: Cudnn = cudnn()
        self.handle = ctypes.c_void_p()
        with torch.cuda.device(device):
            self.library.call("cudnnCreate", ctypes.byref(self.handle))
        self._device = device
        self.workspace = Workspace(device)
        self._stream: int | None = None
        self._plans: dict[tuple[ConvolutionShapes, str], Plan | RefusedError] = {}

    def plan(self, problem: ConvolutionShapes, algorithm: str) -> Plan:
        key = problem, algorithm
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._made(problem, algorithm)
        if isinstance(found, RefusedError):
            raise found
        return found

    def refuse(self, problem: ConvolutionShapes, algorithm: str, error: RefusedError) -> None:
        found = self._plans.get((problem, algorithm))
        if isinstance(found, Plan):
            found.close()
        self._plans[problem, algorithm] = error

    def _made(self, problem: ConvolutionShapes, algorithm: str) -> Plan | RefusedError:
        if is_capturing():
            raise CannotMeasureError(
                "a convolution is captured in a CUDA graph before it ever ran by "
                f"{algorithm!r}: run it once first, so that its workspace is ready"
            )
        try:
            return Plan(self, problem, algorithm)
        except RefusedError as error:
            return error

    def workspace_on_current_stream(self) -> int:
        """Point cuDNN at torch's current stream and return where the workspace is for it."""
        stream = torch.cuda.current_stream(self._device)
        if stream.cuda_stream != self._stream:
            self._stream = stream.cuda_stream
            self.library.call("cudnnSetStream", self.handle, self._stream)
        return self.workspace.pointer(stream, capturing=is_capturing())

    def clear(self) -> None:
        """Give descriptors and workspace back; no graph that used them may be replayed after."""
        for plan in self._plans.values():
            if isinstance(plan, Plan):
                plan.close()
        self._plans.clear()
        self.workspace.clear()


@cache
def _planners() -> dict[int, Planner]:
    return {}


def planner_of(device: torch.device) -> Planner:
    index = torch.cuda.current_device() if device.index is None else device.index
    planners = _planners()
    if index not in planners:
        planners[index] = Planner(torch.device("cuda", index))
    return planners[index]


def forget_plans() -> None:
    """Give every plan's memory back; no graph that used one may be replayed after."""
    for planner in _planners().values():
        planner.clear()
