"""Small models in which inductor does each of the things that a fused group must tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, fold, gelu, scaled_dot_product_attention

from tests.own import Built, model

CONVOLUTIONS: dict[str, Callable[[], Any]] = {
    "one": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "two": lambda: nn.Conv2d(8, 8, 1),
}


@model(
    (4, 16, 32),
    norm=lambda: nn.LayerNorm(32),
    up=lambda: nn.Linear(32, 64),
    down=lambda: nn.Linear(64, 32),
)
def normed(m: Any, x: Tensor) -> Any:
    """A reduction whose input is used again, on both sides of two products."""
    return x + m.down(gelu(m.up(m.norm(x))))


@model((2, 8, 16, 16), one=CONVOLUTIONS["one"], two=lambda: nn.Conv2d(24, 8, 1, bias=False))
def joined(m: Any, x: Tensor) -> Any:
    """A concatenation of what is computed, what was given, and a view of it."""
    y = m.one(x).relu()
    first, _ = x.chunk(2, 1)
    return m.two(torch.cat([y, x, first, first * 2], 1)[:, :24])


@model(
    lambda: torch.randint(0, 100, (3, 12)),
    table=lambda: nn.Embedding(100, 16),
    place=lambda: nn.Embedding(12, 16),
)
def looked(m: Any, ids: Tensor) -> Any:
    places = torch.arange(ids.shape[1], device=ids.device)
    return (m.table(ids) + m.place(places)).softmax(-1)


@model((2, 8, 64), (2, 8, 8))
def attended(m: Any, x: Tensor, y: Tensor) -> Tensor:
    """Attention, of which several tensors come, and masked scores by hand."""
    heads = x.view(2, 8, 4, 16).transpose(1, 2)
    found = scaled_dot_product_attention(heads, heads, heads)
    return found.transpose(1, 2).reshape(2, 8, 64) + y.softmax(-1) @ x


@model((2048, 64))
def split(m: Any, x: Tensor) -> Tensor:
    """A long sum, and a graph that dynamo breaks in two."""
    y = (x * 2).sum() + x
    print(end="")
    return y.sigmoid()


@model(linear=lambda: nn.Linear(8, 8))
def _block(m: Any, x: Tensor) -> Any:
    """A part in which dynamo breaks off; equal parts share what is compiled."""
    y = m.linear(x)
    print(end="")
    return y.relu()


@model((4, 8), parts=lambda: nn.ModuleList(_block()[0] for _ in range(3)))
def repeated(m: Any, x: Tensor) -> Tensor:
    """Equal parts, one after the other, in a loop that dynamo leaves as it is."""
    for part in m.parts:
        x = part(x)
    return x


def _of_layer(m: Any, name: str, x: Tensor) -> Any:
    return getattr(m, name)(x)[0]


left_out: Any = torch.compiler.disable(_of_layer)
"""Have dynamo leave a layer out of its graphs, whatever this version of it would take."""


@model(
    lambda: torch.randint(16, (2, 5)),
    embedding=lambda: nn.Embedding(16, 8),
    layer=lambda: nn.LSTM(8, 8, batch_first=True),
    head=lambda: nn.Linear(8, 4),
)
def between(m: Any, ids: Tensor) -> Any:
    """A recurrent layer between two graphs."""
    return m.head(left_out(m, "layer", m.embedding(ids)))


@model((4, 8), passes=lambda: 0)
def counted(m: Any, x: Tensor) -> Any:
    """A model that is another one in each pass."""
    m.passes += 1
    return x * m.passes


@model((2, 3, 8, 8), convolution=lambda: nn.Conv2d(3, 8, 3))
def stored(m: Any, x: Tensor) -> Any:
    """A convolution, and its input changed in place thereafter."""
    y = m.convolution(x)
    x.mul_(2)
    return y


@model((4, 16, 48), up=lambda: nn.Linear(48, 48), down=lambda: nn.Linear(48, 48))
def twice(m: Any, x: Tensor) -> Tensor:
    """Normalized twice, by a mean and a variance that are read again after a product."""
    for _ in range(2):
        x = x + m.up(x).roll(3, 1)
        var, mean = torch.var_mean(x, 2, keepdim=True, correction=0)
        x = m.down((x - mean) * (var + 1e-5).rsqrt())
    return x


@model((2, 64, 16, 16), convolution=lambda: nn.Conv2d(64, 128, 3))
def late(m: Any, x: Tensor) -> Any:
    """One convolution among so many other nodes that inductor leaves it in its layout."""
    y = m.convolution(x)
    for _ in range(300):
        y = y.cos()
    return y


@model(
    (1, 8, 16, 16),
    **CONVOLUTIONS,
    norm=lambda: nn.BatchNorm2d(8),
    three=lambda: nn.Conv2d(16, 8, 1),
)
def pooled(m: Any, x: Tensor) -> Any:
    """What a concatenation keeps as well, computed once more where it is used before."""
    y = avg_pool2d(m.one(x), 2)
    return m.three(torch.cat([y, m.two(m.norm(y).relu())], 1))


@model(
    (1, 64, 56, 56),
    first=lambda: nn.Conv2d(64, 64, 1),
    last=lambda: nn.Conv2d(64, 64, 1),
    norm=lambda: nn.LayerNorm(64),
    mlps=lambda: nn.ModuleList(nn.Linear(64, 64) for _ in range(4)),
)
def windowed(m: Any, x: Tensor) -> Any:
    """Windows of images, normalized between convolutions: views over a long sum."""
    y = m.first(x)
    rows = y.reshape(1, 64, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).reshape(1, 64, 49, 64)
    for mlp in m.mlps:
        rows = rows + mlp(m.norm(rows))
    grid = rows.reshape(1, 8, 8, 7, 7, 64).permute(0, 5, 1, 3, 2, 4).reshape(1, 64, 56, 56)
    grid = grid.reshape(1, 64, 7, 8, 7, 8).permute(0, 2, 4, 3, 5, 1).reshape(1, 49, 64, 64)
    turned = grid.permute(0, 2, 1, 3)
    turned = turned + m.norm(turned)
    return m.last(turned.reshape(1, 64, 56, 56))


def _ids() -> Tensor:
    return torch.randint(4, (32,))


@model((32, 16), _ids)
def scattered(m: Any, x: Tensor, ids: Tensor) -> Tensor:
    """Sums into zeros that the model makes, some of which are scattered into again."""
    sums = x.new_zeros(4, 16).index_add(0, ids, x)
    wide = ids[:, None].expand(-1, 16)
    again = sums.sin().scatter_add(0, wide, x)
    folded = fold(x.view(1, 8, 64)[..., :49], (8, 8), 2, stride=1)
    return again.relu() @ folded[0, 0, :1].expand(16, 8)


@model((32, 16), _ids)
def overwritten(m: Any, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    """Zeros that are read between two changes of them, and zeros that are changed in part."""
    sums = x.new_zeros(4, 16).index_add(0, ids, x)
    first = sums @ x.T
    sums = sums.index_add(0, ids, first.T @ first[:, :16])
    part = x.new_zeros(4, 16)
    part[1:3].index_add_(0, ids % 2, x)
    return sums @ x.T, part @ x.T


@model(
    (1, 12, 12, 16),
    norm=lambda: nn.LayerNorm(16),
    convolution=lambda: nn.Conv2d(16, 16, 7, padding=3, groups=16),
)
def depthwise(m: Any, x: Tensor) -> Any:
    """One image, which a depthwise convolution is given as a view of rows of channels."""
    y = m.convolution(m.norm(x).permute(0, 3, 1, 2))
    return m.norm(y.permute(0, 2, 3, 1))


def uncompiled() -> Built:
    return nn.LSTM(8, 8), (torch.randn(3, 2, 8),)


ALL = (
    *("normed", "twice", "joined", "looked", "attended", "split"),
    *("pooled", "windowed", "scattered", "depthwise"),
)


def path(name: str) -> str:
    """Return the import path of one of these models."""
    return f"{__name__}:{name}"
