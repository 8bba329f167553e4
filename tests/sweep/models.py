"""Small models of convolutions, named by their import path."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.Conv2d(8, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))

    def forward(self, image: Tensor) -> Tensor:
        return nn.functional.conv2d(self.first(image), self.weight)


def strided() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 4, 3, stride=2))


class Difficult(nn.Module):
    """Prints, is built by values, has a lazy layer, draws random numbers, and computes NaN."""

    def __init__(self) -> None:
        super().__init__()
        print("built")
        self.first = nn.Conv2d(3, 4, 3)
        self.scale = float(self.first.weight.detach().sum())
        self.second = nn.LazyConv2d(2, 3)

    def forward(self, image: Tensor) -> Tensor:
        print("called")
        found = self.second(nn.functional.dropout(self.first(image * self.scale), 0.5, True))
        return torch.cat([found, found * torch.nan])


class OfItsOwnMind(nn.Module):
    """Raises what torch never raises, where it is run for real."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)

    def forward(self, image: Tensor) -> Tensor:
        if not image.is_meta:
            raise LookupError("such a pixel")
        found: Tensor = self.first(image)
        return found


def words() -> tuple[nn.Module, tuple[Tensor]]:
    return nn.Linear(4, 4), (torch.randn(2, 4),)
