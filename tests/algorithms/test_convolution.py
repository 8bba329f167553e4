"""Names of convolution algorithms, and the operator that runs one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from opdb.algorithms.convolution import ForcedCall, run, tf32_allowed
from opdb.algorithms.cudnn import padding_of
from opdb.algorithms.names import ALGORITHMS, algorithm_named, algorithms_named, numbered
from opdb.errors import CannotMeasureError, RefusedError, UnknownNameError
from tests.algorithms.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shape_and_layout_on_meta_are_torchs(case: Case) -> None:
    call = case.call("fft")
    tensors = [t if t is None else t.to("meta") for t in call[:3]]
    output = run(*tensors, *call[3:])
    wanted = torch.nn.functional.conv2d(*call[:-1])
    assert output.shape == wanted.shape
    assert output.stride() == wanted.stride()
    assert output.dtype == wanted.dtype


@pytest.mark.parametrize("algorithm", ["fft", "guess", "winograd"])
def test_a_cpu_has_no_algorithm_of_cudnns(algorithm: str) -> None:
    with pytest.raises(CannotMeasureError, match=f"{algorithm!r} is cuDNN's and needs"):
        run(*Case("").call(algorithm))


def test_torchs_own_way_is_not_for_this_operator() -> None:
    with pytest.raises(RefusedError, match="torch's own"):
        run(*Case("").call("default"))


def test_tensors_of_different_types_are_refused() -> None:
    call = Case("").call("fft")
    with pytest.raises(RefusedError, match=r"float32 with weights of torch\.float16"):
        call._replace(weight=call.weight.half()).problem()


def test_what_is_no_batch_of_images_is_refused() -> None:
    call = Case("").call("fft")
    with pytest.raises(RefusedError, match="an input of 3 axes"):
        call._replace(input=call.input[0]).problem()


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"groups": 4}, "do not fit"), ({"input": (1, 6, 1, 1), "padding": (0, 0)}, "no output")],
)
def test_what_is_no_convolution_is_refused(changed: dict[str, object], said: str) -> None:
    problem = replace(Case("").call("fft").problem(), **changed)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=said):
        problem.check()


def test_channels_last_is_told_from_the_tensor_that_says_so() -> None:
    """Weights of one pixel are laid out both ways; then the input decides, as in torch."""
    call = Case("", kernel=(1, 1), channels_last=True).call("fft")
    assert call.problem().channels_last
    assert not call._replace(input=call.input.contiguous()).problem().channels_last


def test_tf32_follows_torch() -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        assert not tf32_allowed()
        assert not Case("").call("fft").problem().tf32
        torch.backends.cudnn.allow_tf32 = True
        assert tf32_allowed()
    finally:
        torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("kernel", [(3, 3), (5, 1)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_padding_of_the_same_size_is_torchs(
    kernel: tuple[int, int], dilation: tuple[int, int]
) -> None:
    case = Case("", input=(1, 6, 17, 19), kernel=kernel, dilation=dilation, bias=False)
    call = case.call("fft")._replace(padding=padding_of("same", kernel, dilation))
    assert call.problem().output[2:] == (17, 19)
    wanted = torch.nn.functional.conv2d(*call[:3], padding="same", dilation=dilation)
    assert torch.equal(torch.nn.functional.conv2d(*call[:-1]), wanted)


def test_asymmetric_padding_is_refused_plainly() -> None:
    with pytest.raises(RefusedError, match="not the same on both sides"):
        padding_of("same", (2, 3), (1, 1))
    assert padding_of("valid", (2, 3), (1, 1)) == (0, 0)


def test_the_arguments_have_the_operators_order() -> None:
    schema = torch.ops.opdb.conv2d_forward.default._schema
    assert [argument.name for argument in schema.arguments] == list(ForcedCall._fields)


def test_the_names_are_those_that_people_use() -> None:
    assert list(ALGORITHMS) == [
        "direct",
        "gemm",
        "implicit gemm",
        "implicit precomp gemm",
        "fft",
        "fft tiling",
        "winograd",
        "winograd nonfused",
        "guess",
        "default",
    ]


def test_the_numbers_are_those_of_cudnn() -> None:
    """cudnnConvolutionFwdAlgo_t; 3 is its direct algorithm, which nobody ever implemented."""
    numbers = {a.name: a.number for a in ALGORITHMS.values() if a.number is not None}
    assert numbers == {
        "implicit gemm": 0,
        "implicit precomp gemm": 1,
        "gemm": 2,
        "fft": 4,
        "fft tiling": 5,
        "winograd": 6,
        "winograd nonfused": 7,
    }
    assert all(numbered(number) == name for name, number in numbers.items())
    assert numbered(3) == "cuDNN's algorithm 3"


@pytest.mark.parametrize("name", ["fft tiling", "FFT_TILING", "fft-tiling", " fft  tiling"])
def test_blanks_may_be_spelled_otherwise(name: str) -> None:
    assert algorithm_named(name).slug == "fft_tiling"


def test_an_unknown_name_is_answered_with_all_of_them() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'winograd'") as caught:
        algorithm_named("winogard")
    assert all(name in str(caught.value) for name in ALGORITHMS)


def test_all_names_every_one_and_each_counts_once() -> None:
    assert algorithms_named(["fft", "all", "fft"])[0].name == "fft"
    assert {a.name for a in algorithms_named(["fft", "all", "fft"])} == ALGORITHMS.keys()
    assert len(algorithms_named(["gemm", "gemm"])) == 1


def test_torchs_own_way_is_no_setting() -> None:
    assert not algorithm_named("default").setting
    assert algorithm_named("fft").setting == {"convolution_algorithm": "fft"}
