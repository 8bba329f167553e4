"""Models of a user's own, each with one thing that a harvest could get wrong.

Every builder returns (module, args) or (module, args, kwargs), as the python source takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name that models use)
from torch import Tensor, nn

Built = tuple[Any, ...]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(24, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        states, (hidden, _) = self.lstm(self.embedding(tokens))
        states, _ = self.gru(torch.relu(states).transpose(0, 1))
        logits: Tensor = self.head(states[-1]) + hidden.mean()
        return torch.log_softmax(logits, dim=-1)


def lstm(batch_size: int = 2) -> Built:
    return Tagger(), (torch.randint(0, 50, (batch_size, 7)),)


def steps_first(batch_size: int = 2) -> Built:
    return nn.LSTM(4, 8), (torch.randn(5, batch_size, 4),)


class Reader(nn.Module):
    """Its layers with weights of their own read the data itself, which needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 16, bidirectional=True, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(40, 4)

    def forward(self, x: Tensor) -> Tensor:
        attended, _ = self.attention(x, x, x, need_weights=False)
        read: Tensor = torch.cat([self.gru(x)[0], attended], 2)
        scores: Tensor = self.head(read.mean(1))
        return scores


def reader(batch_size: int = 2) -> Built:
    return Reader(), (torch.randn(batch_size, 7, 8),)


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        alone, _ = self.attention(x, x, x, need_weights=False)
        across, weights = self.attention(x, memory, memory)
        states: Tensor = self.encoder(self.norm(alone + across))
        mixed: Tensor = F.scaled_dot_product_attention(states, states, states) * weights.mean()
        return mixed


def attention() -> Built:
    return Attentive(), (torch.randn(2, 6, 16), torch.randn(2, 9, 16))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.block[0].weight  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.block(x) + x
        out: Tensor = self.head(x)
        return out


class Recovering(nn.Module):
    """Tries a layer that does not fit and goes on with one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = nn.Linear(3, 3)
        self.taken = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.tried(x)
        except RuntimeError:
            x = self.taken(x)
        return x.relu()


def recovering() -> Built:
    return Recovering(), torch.randn(4, 8)


def shared() -> Built:
    return Shared(), torch.randn(4, 8)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 3, 3, 3))
        self.weight = nn.Parameter(torch.randn(10, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.kernel, stride=2, padding=1)
        x = F.max_pool2d(F.relu(x), 2)
        x = torch.cat([x, x.neg()], dim=0)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return torch.softmax(x @ self.weight.t(), dim=1)


def functional() -> Built:
    return Functional(), (torch.randn(2, 3, 16, 16),)


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.mix = nn.Bilinear(4, 4, 3)

    def forward(self, pair: tuple[Tensor, Tensor], *, scale: Tensor, mask: Tensor) -> Tensor:
        left, right = pair
        mixed: Tensor = self.mix(input1=self.first(input=left), input2=self.first(right))
        return (mixed * scale).masked_fill(mask, 0.0)


def keywords() -> Built:
    pair = (torch.randn(5, 8), torch.randn(5, 8))
    return Keywords(), (pair,), {"scale": torch.randn(5, 1), "mask": torch.rand(5, 1) < 0.5}


class AsksForValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.linear = nn.Linear(4, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if x.max().item() < 90:  # by its weights: what hangs on tokens alone is known on meta
            x = self.linear(x)
        kept: Tensor = x[tokens > 2]
        return kept.sum()


def asks_for_values() -> Built:
    return AsksForValues(), (torch.randint(0, 9, (3, 4)),)


def scale_and_shift(x: Tensor) -> Tensor:
    return x * 2.0 + 1.0


def over_its_median(x: Tensor) -> Tensor:
    return x - x.nanmedian()


class Scripted(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scripted: Callable[[Tensor], Tensor] = torch.jit.script(function)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.scripted(self.linear(x)))


def scripted() -> Built:
    return Scripted(scale_and_shift), (torch.randn(2, 4),)


def scripted_beyond() -> Built:
    """Its scripted function calls an operator that no kind describes."""
    return Scripted(over_its_median), (torch.randn(2, 4),)


class StandardizedConv2d(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        return F.conv2d(input, weight, self.bias, self.stride, self.padding)


def inherited() -> Built:
    return nn.Sequential(StandardizedConv2d(3, 4, 3), nn.ReLU()), (torch.randn(1, 3, 8, 8),)


def reparametrized() -> Built:
    old = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    new = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    return nn.Sequential(old, nn.ReLU(), new), (torch.randn(2, 4),)


class WithConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.constant = torch.ones(4)  # neither parameter nor buffer: stays where it was made
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x + self.constant)
        return out


def with_constant() -> Built:
    return WithConstant(), (torch.randn(2, 4),)


def lazy() -> Built:
    return nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2)), (torch.randn(3, 5),)


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", torch.arange(6.0))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros(2, 6, dtype=x.dtype, device=x.device)
        out[:, :3] = x
        out.add_(self.table).relu_()
        return F.gelu(out.view(-1))


def writes() -> Built:
    return Writes(), (torch.randn(2, 3),)


class Keeps(nn.Module):
    """Keeps what its first pass makes: as an attribute, in a dictionary, as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.order: Tensor | None = None
        self.tables: dict[int, Tensor] = {}
        self.scale: Tensor
        self.register_buffer("scale", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if self.order is None:
            self.order = torch.arange(length, device=x.device) % 3
        if length not in self.tables:
            self.tables[length] = torch.arange(length, device=x.device).float().sin()
        if len(self.scale) != length:
            self.scale = torch.arange(length, device=x.device).float().cos()
        ordered: Tensor = self.linear(x)[:, self.order]
        return (ordered + self.tables[length][:, None]) * self.scale[:, None]


def keeps() -> Built:
    return Keeps(), (torch.randn(2, 5, 8),)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def fails() -> Built:
    return Fails(), (torch.randn(2, 4),)


class BadView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, 3)


def fails_in_a_function() -> Built:
    wrapped = nn.Sequential()
    wrapped.add_module("inner", BadView())
    return wrapped, (torch.randn(2, 4),)


def bare() -> nn.Module:
    return nn.Linear(4, 4)


def not_a_module() -> int:
    return 3


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        from opdb.harvest.passes import harvest
        from opdb.spec import ModelSpec

        harvest(ModelSpec("mlp"))
        return x


def nested() -> Built:
    return Nested(), (torch.randn(2, 4),)


class Spectral(nn.Module):
    """A Fourier layer: a complex parameter, and a complex buffer as rotary positions are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.complex64))
        self.turn: Tensor
        self.register_buffer("turn", torch.ones(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * self.weight * self.turn)


def spectral() -> Built:
    return Spectral(), (torch.randn(2, 4, 2),)


class Applied(nn.Module):
    """Computes by a function given to it."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def mapped_over() -> Built:
    return Applied(lambda x: torch.vmap(lambda row: row @ row.T)(x + 1)), (torch.randn(3, 4, 5),)


def differentiated() -> Built:
    return Applied(torch.func.grad(lambda x: (x**2).sum())), (torch.randn(5),)


def branching() -> Built:
    def branch(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    return Applied(branch), (torch.randn(2, 4),)


def sized_by_a_tensor() -> Built:
    size: Any = torch.tensor(3)
    return Applied(lambda x: torch.zeros(2, size) + x), (torch.randn(2, 3),)


def ends_the_process() -> Built:
    raise SystemExit(7)


def ends_in_forward() -> Built:
    return Applied(lambda x: sys.exit("enough")), (torch.randn(2, 4),)


def unhashable() -> Built:
    class Unhashable(Applied):
        __hash__ = None  # type: ignore[assignment]

    return Unhashable(torch.relu), (torch.randn(2, 4),)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class TakesByName(nn.Module):
    """Reads the fields of a named tuple, and returns one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, pair: Pair) -> Pair:
        return Pair(self.linear(pair.left), torch.relu(pair.right))


def named_tuple() -> Built:
    return TakesByName(), (Pair(torch.randn(2, 4), torch.randn(2, 3)),)


class Lazily(nn.Module):
    """Returns what it has yet to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])

    def forward(self, x: Tensor) -> Any:
        return (part(x) for part in self.parts)


def lazily() -> Built:
    return Lazily(), (torch.randn(2, 4),)


class Threaded(nn.Module):
    """Runs its parts in threads of its own, and adds up what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])

    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda part: part(x), self.parts)
        return torch.add(first, second)


def threaded() -> Built:
    return Threaded(), (torch.randn(2, 4),)


def scaled_without_end() -> Built:
    return nn.Linear(4, 4), (torch.randn(2, 4), float("inf"))


def always_trains() -> Built:
    class Stubborn(nn.Linear):
        def train(self, mode: bool = True) -> Any:
            raise NotImplementedError("no eval")

    return Stubborn(4, 4), (torch.randn(2, 4),)


def large_and_broken() -> Built:
    nn.Linear(1000, 1000)
    raise KeyError("rope")


def casts_by_itself() -> Built:
    def cast(x: Tensor) -> Tensor:
        with torch.autocast("cuda"):
            return F.linear(x, x)

    return Applied(cast), (torch.randn(2, 4),)


def prints() -> Built:
    print("while it is built")

    def speak(x: Tensor) -> Tensor:
        print("while it runs")
        return x + 1

    return Applied(speak), (torch.randn(2, 4),)


def image_in_float32() -> Built:
    return nn.Conv2d(3, 4, 3), (torch.randn(2, 3, 8, 8),)


COMPLETE = (
    *("lstm", "attention", "shared", "functional", "keywords", "asks_for_values"),
    *("inherited", "reparametrized", "with_constant", "lazy", "writes", "recovering"),
    *("spectral", "prints", "image_in_float32", "named_tuple", "keeps"),
)
"""The builders whose every call a registered operator describes."""


def path(name: str) -> str:
    """Return a builder's name as the python source takes it."""
    return f"{__name__}:{name}"
