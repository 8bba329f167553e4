from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from opdb.algorithms.convolution import ForcedCall, run, tf32_allowed
from opdb.algorithms.problem import padding_of
from opdb.errors import CannotMeasureError, RefusedError
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
