"""Small models in which inductor does each of the things that a fused group must tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, fold, gelu, scaled_dot_product_attention

Built = tuple[nn.Module, tuple[Any, ...]]
F = TypeVar("F", bound=Callable[..., Any])


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


class Block(nn.Module):
    """A part in which dynamo breaks off; equal parts share what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        print(end="")
        return y.relu()


class Repeated(nn.Module):
    """Equal parts, one after the other, in a loop that dynamo leaves as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def repeated() -> Built:
    return Repeated(), (torch.randn(4, 8),)


def left_out(function: F) -> F:
    """Have dynamo leave a function out of its graphs, whatever this version of it would take."""
    disable: Any = torch.compiler.disable
    return cast(F, disable(function))


class Recurrent(nn.Module):
    """Different recurrent layers on one input, which dynamo is told to leave out."""

    def __init__(self, *, twice: bool) -> None:
        super().__init__()
        self.twice = twice
        self.one = nn.GRU(8, 8, batch_first=True)
        self.other = nn.GRU(8, 4, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).sin()
        return torch.cat([y, self.second(x).cos()], -1) if self.twice else y

    @left_out
    def first(self, x: Tensor) -> Tensor:
        y: Tensor = self.one(x)[0]
        return y

    @left_out
    def second(self, x: Tensor) -> Tensor:
        y: Tensor = self.other(x)[0]
        return y


def recurrent() -> Built:
    return Recurrent(twice=False), (torch.randn(2, 5, 8),)


def recurrent_twice() -> Built:
    return Recurrent(twice=True), (torch.randn(2, 5, 8),)


class Between(nn.Module):
    """A recurrent layer between two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.layer = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.between(self.embedding(ids)))
        return y

    @left_out
    def between(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)[0]
        return y


def between() -> Built:
    return Between(), (torch.randint(16, (2, 5)),)


class Counted(nn.Module):
    """A model that is another one in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x * self.passes


def counted() -> Built:
    return Counted(), (torch.randn(4, 8),)


def dropped() -> Built:
    return nn.Dropout(0.5), (torch.randn(4, 8),)


class Constant(nn.Module):
    """Tensors that the model's code makes, of which inductor puts small ones into its code."""

    def forward(self, x: Tensor) -> Tensor:
        order = torch.tensor([1, 0, 3, 2])
        return (x[:, order] + torch.tensor([1.0, 2.0, 3.0, 4.0])) * torch.tensor(0.5)


def constant() -> Built:
    return Constant(), (torch.randn(4, 4),)


class Stored(nn.Module):
    """A convolution, and its input changed in place thereafter."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        x.mul_(2)
        return y


def stored() -> Built:
    return Stored(), (torch.randn(2, 3, 8, 8),)


class Twice(nn.Module):
    """Normalized twice, by a mean and a variance that are read again after a product."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + self.up(x).roll(3, 1)
            var, mean = torch.var_mean(x, 2, keepdim=True, correction=0)
            x = self.down((x - mean) * (var + 1e-5).rsqrt())
        return x


def twice() -> Built:
    return Twice(), (torch.randn(4, 16, 48),)


class Late(nn.Module):
    """One convolution among so many other nodes that inductor leaves it in its layout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(64, 128, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        for _ in range(300):
            y = y.cos()
        return y


def late() -> Built:
    return Late(), (torch.randn(2, 64, 16, 16),)


class Pooled(nn.Module):
    """What a concatenation keeps as well, computed once more where it is used before."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.norm, self.three = nn.BatchNorm2d(8), nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = avg_pool2d(self.one(x), 2)
        z: Tensor = self.three(torch.cat([y, self.two(self.norm(y).relu())], 1))
        return z


def pooled() -> Built:
    return Pooled().eval(), (torch.randn(1, 8, 16, 16),)


class Windowed(nn.Module):
    """Windows of images, normalized between convolutions: views over a long sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 1)
        self.norm, self.mlps = nn.LayerNorm(64), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        rows = y.reshape(1, 64, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).reshape(1, 64, 49, 64)
        for mlp in self.mlps:
            rows = rows + mlp(self.norm(rows))
        grid = rows.reshape(1, 8, 8, 7, 7, 64).permute(0, 5, 1, 3, 2, 4).reshape(1, 64, 56, 56)
        grid = grid.reshape(1, 64, 7, 8, 7, 8).permute(0, 2, 4, 3, 5, 1).reshape(1, 49, 64, 64)
        turned = grid.permute(0, 2, 1, 3)
        turned = turned + self.norm(turned)
        z: Tensor = self.last(turned.reshape(1, 64, 56, 56))
        return z


def windowed() -> Built:
    return Windowed(), (torch.randn(1, 64, 56, 56),)


class Scattered(nn.Module):
    """Sums into zeros that the model makes, some of which are scattered into again."""

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        sums = x.new_zeros(4, 16).index_add(0, ids, x)
        wide = ids[:, None].expand(-1, 16)
        again = sums.sin().scatter_add(0, wide, x)
        return again.relu() @ fold(x.view(1, 8, 64)[..., :49], (8, 8), 2, stride=1)[
            0, 0, :1
        ].expand(16, 8)


def scattered() -> Built:
    return Scattered(), (torch.randn(32, 16), torch.randint(4, (32,)))


class Overwritten(nn.Module):
    """Zeros that are read between two changes of them, and zeros that are changed in part."""

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        sums = x.new_zeros(4, 16).index_add(0, ids, x)
        first = sums @ x.T
        sums = sums.index_add(0, ids, first.T @ first[:, :16])
        part = x.new_zeros(4, 16)
        part[1:3].index_add_(0, ids % 2, x)
        return sums @ x.T, part @ x.T


def overwritten() -> Built:
    return Overwritten(), (torch.randn(32, 16), torch.randint(4, (32,)))


class Turned(nn.Module):
    """Looked up from the end, and read from the end."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = (x[:, [-2, 0]] + 1) @ x.flip(0)[:2, :8]
        return y


def turned() -> Built:
    return Turned(), (torch.randn(4, 16),)


class Heads(nn.Module):
    """Rows of what convolutions give, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = (self.one(x), self.two(x))
        rows = torch.cat([y.permute(0, 2, 3, 1).reshape(1, -1, 4) for y in found], 1)
        return rows.sigmoid()


def heads() -> Built:
    return Heads(), (torch.randn(1, 8, 16, 16),)


class Grown(nn.Module):
    """What convolutions give, put together in channels last and given back in rows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x).relu()
        return torch.cat([y, self.two((y * 2).sin())], 1)


def grown() -> Built:
    return Grown(), (torch.randn(2, 8, 16, 16),)


class Transformed(nn.Module):
    """Copied into memory of another type, which is made for it, by a library's kernel."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.fft.fftn(x, dim=(0, 1)).real.relu()
        return y


def transformed() -> Built:
    return Transformed(), (torch.randn(4, 16),)


class Depthwise(nn.Module):
    """One image, which a depthwise convolution is given as a view of rows of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.convolution = nn.Conv2d(16, 16, 7, padding=3, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(self.norm(x).permute(0, 3, 1, 2))
        z: Tensor = self.norm(y.permute(0, 2, 3, 1))
        return z


def depthwise() -> Built:
    return Depthwise(), (torch.randn(1, 12, 12, 16),)


def uncompiled() -> Built:
    return nn.LSTM(8, 8), (torch.randn(3, 2, 8),)


ALL = (
    "normed",
    "twice",
    "joined",
    "looked",
    "attended",
    "split",
    "constant",
    "pooled",
    "windowed",
    "scattered",
    "depthwise",
    "turned",
    "heads",
    "grown",
)


def path(name: str) -> str:
    """Return the import path of one of these models."""
    return f"{__name__}:{name}"
