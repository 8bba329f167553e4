"""Small models in which inductor does each of the things that a fused group must tell."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

Built = tuple[nn.Module, tuple[Any, ...]]


class Normed(nn.Module):
    """A reduction whose input is used again, on both sides of two products."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(gelu(self.up(self.norm(x))))
        return y


def normed() -> Built:
    return Normed(), (torch.randn(4, 16, 32),)


class Joined(nn.Module):
    """A concatenation of what is computed, what was given, and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(24, 8, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x).relu()
        first, _ = x.chunk(2, 1)
        z: Tensor = self.two(torch.cat([y, x, first, first * 2], 1)[:, :24])
        return z


def joined() -> Built:
    return Joined(), (torch.randn(2, 8, 16, 16),)


class Looked(nn.Module):
    """Tables looked up by indices."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(100, 16), nn.Embedding(12, 16)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        both: Tensor = self.table(ids) + self.place(places)
        return both.softmax(-1)


def looked() -> Built:
    return Looked(), (torch.randint(0, 100, (3, 12)),)


class Attended(nn.Module):
    """Attention, of which several tensors come, and masked scores by hand."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        heads = x.view(2, 8, 4, 16).transpose(1, 2)
        found = scaled_dot_product_attention(heads, heads, heads)
        return found.transpose(1, 2).reshape(2, 8, 64) + y.softmax(-1) @ x


def attended() -> Built:
    return Attended(), (torch.randn(2, 8, 64), torch.randn(2, 8, 8))


class Split(nn.Module):
    """A long sum, and a graph that dynamo breaks in two."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x * 2).sum() + x
        print(end="")
        return y.sigmoid()


def split() -> Built:
    return Split(), (torch.randn(2048, 64),)


class Remembered(nn.Module):
    """A buffer that is changed in place."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.mean(0))
        return x + self.seen


def remembered() -> Built:
    return Remembered(), (torch.randn(4, 8),)


def uncompiled() -> Built:
    return nn.LSTM(8, 8), (torch.randn(3, 2, 8),)


ALL = ("normed", "joined", "looked", "attended", "split")


def path(name: str) -> str:
    """Return the import path of one of these models."""
    return f"{__name__}:{name}"
