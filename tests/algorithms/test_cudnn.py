"""Plans, the GPU itself played: real descriptors, a played handle."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opdb.algorithms import convolution
from opdb.algorithms.convolution import (
    ConvolutionShapes,
    Cudnn,
    math_of,
    plan_of,
)
from opdb.errors import CannotMeasureError, RefusedError
from tests.algorithms.cases import CASES, Case

CPU = torch.device("cpu")
NUMBERS = {"implicit gemm": 0, "gemm": 2, "fft": 4}


class Played(Cudnn):
    """cuDNN as torch brings it, but for what needs a GPU: needs of 100 bytes times the number."""

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[tuple[int, int, int]] = []
        self.status = 0
        self._functions |= {
            "cudnnCreate": lambda *_: 0,
            "cudnnSetStream": lambda *_: 0,
            "cudnnGetConvolutionForwardWorkspaceSize": self._size,
            "cudnnGetConvolutionForwardAlgorithm_v7": self._propose,
            "cudnnConvolutionForward": self._run,
        }

    def _size(self, *arguments: Any) -> int:
        number, size = arguments[5:]
        if number == NUMBERS["fft"]:
            return 3000
        ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = 100 * number
        return 0

    def _propose(self, *arguments: Any) -> int:
        found, proposals = arguments[6:]
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = 2
        proposals[0].algorithm, proposals[0].status = NUMBERS["fft"], 3000
        proposals[1].algorithm, proposals[1].math = NUMBERS["gemm"], convolution.TENSOR_OP_MATH
        return 0

    def _run(self, *arguments: Any) -> int:
        number, pointer, size = arguments[7:10]
        self.issued.append((number, pointer, size))
        return self.status


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    try:
        library = Played()
    except CannotMeasureError as error:
        pytest.skip(f"this torch is built without cuDNN 9: {error}")
    monkeypatch.setattr(convolution, "cudnn", lambda: library)
    monkeypatch.setattr(torch.cuda, "device", lambda *_: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=7))
    yield library
    convolution.handle_of.cache_clear()
    convolution.plan_of.cache_clear()


def problem(**changes: Any) -> ConvolutionShapes:
    return Case("", **changes).call("gemm").problem()


def test_a_plan_is_made_once_and_runs_what_it_was_told(played: Played) -> None:
    plan = plan_of(CPU, problem(), "gemm")
    assert plan_of(CPU, problem(), "gemm") is plan
    assert plan_of(CPU, problem(stride=(2, 2)), "gemm") is not plan
    plan.run(1, 2, 3)
    [(number, _, size)] = played.issued
    assert (number, size, plan.ran) == (NUMBERS["gemm"], 200, "gemm")


def test_a_refusal_is_no_failure(played: Played) -> None:
    with pytest.raises(RefusedError, match=r"NOT_SUPPORTED \(3000\)"):
        plan_of(CPU, problem(), "fft")
    played.status = 3007
    with pytest.raises(RefusedError, match="ARCH_MISMATCH"):
        plan_of(CPU, problem(), "gemm").run(1, 2, 3)
    played.status = 5000
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        plan_of(CPU, problem(), "implicit gemm").run(1, 2, 3)


def test_a_guess_is_the_first_that_can_run(played: Played) -> None:
    plan = plan_of(CPU, problem(), "guess")
    plan.run(1, 2, 3)
    assert plan.ran == "gemm" and played.issued[0][0] == NUMBERS["gemm"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_descriptor_is_taken(case: Case, played: Played) -> None:
    call = case.call("gemm")
    plan_of(CPU, call.problem(), "gemm")
    assert call.problem().output == tuple(torch.nn.functional.conv2d(*call[:-1]).shape)


def test_no_library_is_said_plainly() -> None:
    with pytest.raises(CannotMeasureError, match=r"libnothing\.so\.9.*install a torch built"):
        Cudnn("libnothing.so.9")


@pytest.mark.parametrize(
    ("dtype", "tf32", "math"),
    [
        ("float32", True, convolution.DEFAULT_MATH),
        ("float32", False, convolution.FMA_MATH),
        ("float16", False, convolution.TENSOR_OP_MATH),
        ("bfloat16", False, convolution.DEFAULT_MATH),
    ],
)
def test_the_arithmetic_is_what_torch_allows(dtype: str, tf32: bool, math: int) -> None:
    problem = replace(Case("").call("fft").problem(), dtype=dtype, tf32=tf32)
    assert math_of(problem) == math
