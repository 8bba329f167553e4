"""The convolution, with the operator put aside: a CPU has no algorithm that could be forced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import Tensor, nn

from opdb.algorithms import convolution
from opdb.algorithms.convolution import ForcedCall, swapped
from opdb.algorithms.names import algorithm_named
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


def test_what_ran_is_told_by_shape(calls: list[ForcedCall]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, stride=2))
    with swapped(model, FFT) as done:
        outputs(model, 16)
        outputs(model, 20)
    assert done.layers["0"].ran == {(1, 3, 16, 16): "fft", (1, 3, 20, 20): "fft"}
    assert set(done.layers["1"].ran.values()) == {"default"}


def test_all_is_put_back_when_a_pass_fails(calls: list[ForcedCall]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(RuntimeError, match="expected input"), swapped(model, FFT):
        outputs(nn.Sequential(nn.Conv2d(3, 8, 1), model))
    assert "_conv_forward" not in model[0].__dict__


def test_default_swaps_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with swapped(model, algorithm_named("default")) as done:
        assert "_conv_forward" not in model[0].__dict__
        assert not done.layers


class OwnForward(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


def test_a_class_that_computes_otherwise_is_left_and_said_so(calls: list[ForcedCall]) -> None:
    model = nn.Sequential(OwnForward(3, 4, 3), nn.Conv2d(4, 4, 1))
    wanted = outputs(model)
    with swapped(model, FFT) as done:
        assert torch.equal(outputs(model), wanted)
    assert done.refused == {"0": convolution.OWN_FORWARD}
    assert done.forced == ["1"]


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


def test_padding_on_one_side_alone_is_left_to_torch(calls: list[ForcedCall]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 2, padding="same"))
    wanted = outputs(model, 16)
    with swapped(model, FFT) as done:
        assert torch.equal(outputs(model, 16), wanted)
    assert "not the same on both sides" in done.refused["0"]
    assert not calls
