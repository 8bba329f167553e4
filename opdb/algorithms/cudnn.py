"""cuDNN's forward convolution by ctypes: its functions, descriptors and words for its statuses.

The functions are those of cuDNN's older interface, deprecated since 9.0 and still there: it alone
lets an algorithm be named. Their arguments are declared, since ctypes else cuts 64-bit pointers,
and the order of the same arguments differs from one function to the next.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any

from opdb.algorithms.problem import Convolution, Four
from opdb.errors import CannotMeasureError, RefusedError

LIBRARY = "libcudnn.so.9"

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
"""cuDNN's numbers of the types that a convolution may have."""

DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
_NCHW, _NHWC = 0, 1
_CROSS_CORRELATION = 1
_MOST_PROPOSALS = 8


_REFUSALS = range(2000, 4000)
"""Statuses that say no: a bad parameter (2000 …), not supported (3000 …). Others are failures."""


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
    "cudnnConvolutionForward": (
        *[c_void_p] * 7,
        c_int,
        c_void_p,
        c_size_t,
        *[c_void_p] * 3,
    ),
}


class Cudnn:
    """cuDNN's library, its functions declared; a status other than success is an error."""

    def __init__(self, name: str = LIBRARY) -> None:
        """Load the library, which torch has loaded before where it is one built with CUDA.

        Raises:
            CannotMeasureError: it is not there, or lacks a function.
        """
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
        """Return cuDNN's own name of a status, with its number."""
        return f"{self._words(status).decode()} ({status})"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RefusedError: cuDNN does not do what was asked for.
            CudnnError: it failed.
        """
        self.check(name, self._functions[name](*arguments))

    def check(self, name: str, status: int) -> None:
        """Check the status that a function returned.

        Raises:
            RefusedError: cuDNN does not do what was asked for.
            CudnnError: it failed.
        """
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
    """Return this process's cuDNN.

    Raises:
        CannotMeasureError: there is none.
    """
    return Cudnn()


class Descriptors:
    """One convolution as cuDNN takes it; needs no GPU. `close` gives the descriptors back."""

    def __init__(self, library: Cudnn, problem: Convolution) -> None:
        """Describe a convolution to cuDNN.

        Raises:
            RefusedError: cuDNN has no such type, or refuses the numbers.
        """
        if problem.dtype not in TYPES:
            raise RefusedError(f"cuDNN convolves {', '.join(TYPES)}; not {problem.dtype}")
        self._library = library
        self._destroyers: list[tuple[str, c_void_p]] = []
        try:
            self.input = self._made("Tensor")
            self.weight = self._made("Filter")
            self.convolution = self._made("Convolution")
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

    def _describe(self, problem: Convolution) -> None:
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
        """Say in which arithmetic cuDNN may compute."""
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
        """Return the descriptors in the order in which cuDNN is asked about them."""
        return self.input, self.weight, self.convolution, self.output

    def close(self) -> None:
        """Give the descriptors back."""
        while self._destroyers:
            name, made = self._destroyers.pop()
            self._library.call(name, made)


def math_of(problem: Convolution) -> int:
    """Return the arithmetic that torch, too, lets cuDNN use for a type (Conv_v7.cpp)."""
    if problem.dtype == "float16":
        return TENSOR_OP_MATH
    if problem.dtype == "float32" and not problem.tf32:
        return FMA_MATH
    return DEFAULT_MATH


def scalar(dtype: str, value: float) -> ctypes.c_float | ctypes.c_double:
    """Return a factor in host memory as cuDNN takes it for a type."""
    return c_double(value) if dtype == "float64" else c_float(value)


def workspace_bytes(library: Cudnn, handle: c_void_p, descriptors: Descriptors, number: int) -> int:
    """Return the bytes that an algorithm (cuDNN's number) needs beside the tensors.

    Raises:
        RefusedError: cuDNN does not run the convolution by it.
    """
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
    """Return what cuDNN's heuristic names first of all that it says can run.

    Raises:
        RefusedError: it names nothing that can.
    """
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
