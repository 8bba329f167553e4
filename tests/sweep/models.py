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


def strided() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 4, 3, stride=2))


def words() -> tuple[nn.Module, tuple[Tensor]]:
    return nn.Linear(4, 4), (torch.randn(2, 4),)
