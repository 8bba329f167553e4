from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from opdb.algorithms import cudnn
from opdb.algorithms.cudnn import Cudnn, CudnnError, Descriptors, Proposal, math_of
from opdb.errors import CannotMeasureError, RefusedError
from tests.algorithms.cases import CASES, Case


@pytest.fixture
def library() -> Cudnn:
    """cuDNN, whose descriptors need no GPU."""
    try:
        return cudnn.cudnn()
    except CannotMeasureError as error:
        pytest.skip(f"this torch is built without cuDNN 9: {error}")


def test_the_library_is_torchs_own(library: Cudnn) -> None:
    assert library.version == torch.backends.cudnn.version()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cudnn_and_torch_agree_about_the_output(case: Case, library: Cudnn) -> None:
    """Every descriptor is taken, so no argument stands in another's place."""
    call = case.call("fft")
    problem = call.problem()
    descriptors = Descriptors(library, problem)
    wanted = tuple(torch.nn.functional.conv2d(*call[:-1]).shape)
    assert descriptors.output_shape() == problem.output == wanted
    descriptors.close()
    descriptors.close()  # once more does nothing


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (2000, "CUDNN_STATUS_BAD_PARAM (2000)"),
        (3000, "CUDNN_STATUS_NOT_SUPPORTED (3000)"),
        (3007, "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH (3007)"),
    ],
)
def test_a_refusal_carries_cudnns_own_status(library: Cudnn, status: int, name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        library.check("cudnnConvolutionForward", status)
    assert str(caught.value) == f"cudnnConvolutionForward: {name}"
    assert caught.value.status == status


def test_a_failure_is_no_refusal(library: Cudnn) -> None:
    with pytest.raises(CudnnError, match=r"CUDNN_STATUS_EXECUTION_FAILED \(5000\)"):
        library.check("cudnnConvolutionForward", 5000)
    library.check("cudnnConvolutionForward", 0)


def test_what_cudnn_does_not_take_is_refused_with_its_status(library: Cudnn) -> None:
    problem = replace(Case("").call("fft").problem(), stride=(0, 1))
    with pytest.raises(RefusedError, match=r"cudnnSetConvolution2dDescriptor: CUDNN_STATUS_BAD"):
        Descriptors(library, problem)


def test_a_type_that_cudnn_does_not_convolve_is_refused(library: Cudnn) -> None:
    problem = replace(Case("").call("fft").problem(), dtype="complex64")
    with pytest.raises(RefusedError, match="not complex64"):
        Descriptors(library, problem)


def test_no_library_is_said_plainly() -> None:
    with pytest.raises(CannotMeasureError, match=r"libnothing\.so\.9.*install a torch built"):
        Cudnn("libnothing.so.9")


def test_a_proposal_takes_48_bytes_as_in_cudnns_header() -> None:
    assert ctypes.sizeof(Proposal) == 48


@pytest.mark.parametrize(
    ("dtype", "tf32", "math"),
    [
        ("float32", True, cudnn.DEFAULT_MATH),
        ("float32", False, cudnn.FMA_MATH),
        ("float16", False, cudnn.TENSOR_OP_MATH),
        ("bfloat16", False, cudnn.DEFAULT_MATH),
    ],
)
def test_the_arithmetic_is_what_torch_allows(dtype: str, tf32: bool, math: int) -> None:
    problem = replace(Case("").call("fft").problem(), dtype=dtype, tf32=tf32)
    assert math_of(problem) == math
