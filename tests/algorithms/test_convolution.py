"""The convolution, with torch's in its place: a CPU has no algorithm that could be forced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torchvision
from torch import Tensor, nn

from opdb.algorithms.convolution import ForcedCall, swapped, tf32_allowed
from opdb.algorithms.names import ALGORITHMS, algorithm_named
from opdb.errors import RefusedError, UnknownNameError
from tests.algorithms.cases import Case
from tests.algorithms.stand_in import stand_in

FFT = algorithm_named("fft")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[ForcedCall]:
    return stand_in(monkeypatch)


def outputs(model: nn.Module, size: int = 64) -> Tensor:
    with torch.no_grad():
        made: Tensor = model(torch.randn(1, 3, size, size, generator=torch.manual_seed(0)))
    return made


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "mobilenet_v3_small"])
def test_a_model_computes_the_same_and_is_put_back(name: str, calls: list[ForcedCall]) -> None:
    model = torchvision.models.get_model(name, weights=None).eval()
    before = {path: dict(module.__dict__) for path, module in model.named_modules()}
    wanted = outputs(model)
    with swapped(model, FFT) as done:
        assert torch.equal(outputs(model), wanted)
        assert outputs(model).shape == wanted.shape
    layers = {p: m for p, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    strided = {p for p, m in layers.items() if m.stride != (1, 1)}
    assert set(done.refused) == strided
    assert set(done.forced) == layers.keys() - strided
    assert all("NOT_SUPPORTED (3000)" in said for said in done.refused.values())
    assert len(calls) == 2 * len(done.forced)
    assert {path: dict(module.__dict__) for path, module in model.named_modules()} == before
    assert torch.equal(outputs(model), wanted)
    assert len(calls) == 2 * len(done.forced)


def test_all_is_put_back_when_a_pass_fails(calls: list[ForcedCall]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(RuntimeError, match="expected input"), swapped(model, FFT):
        outputs(nn.Sequential(nn.Conv2d(3, 8, 1), model))
    assert "_conv_forward" not in model[0].__dict__


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(3, 4, 3, padding="same", dilation=2),
        lambda: nn.Conv2d(3, 4, 3, padding="valid", bias=False),
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        lambda: nn.Conv2d(3, 6, (1, 5), padding=(0, 2), groups=3, padding_mode="circular"),
    ],
)
def test_padding_of_every_sort_is_kept(
    make: Callable[[], nn.Conv2d], calls: list[ForcedCall]
) -> None:
    model = nn.Sequential(make())
    wanted = outputs(model, 16)
    with swapped(model, FFT) as done:
        assert torch.equal(outputs(model, 16), wanted)
        image = torch.randn(3, 16, 16)
        with torch.no_grad():
            assert model(image).shape == wanted.shape[1:]
    assert done.forced == ["0"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"groups": 4}, "do not fit"), ({"input": (1, 6, 1, 1), "padding": (0, 0)}, "no output")],
)
def test_what_is_no_convolution_is_refused(changed: dict[str, object], said: str) -> None:
    problem = replace(Case("").call("fft").problem(), **changed)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=said):
        problem.check()


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


def test_an_unknown_name_is_answered_with_all_of_them() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'winograd'") as caught:
        algorithm_named("winogard")
    assert all(name in str(caught.value) for name in ALGORITHMS)
