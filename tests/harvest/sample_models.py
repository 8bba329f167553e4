"""Models of a user's own, each with one thing that a harvest could get wrong.

Every builder returns (module, args) or (module, args, kwargs), as the python source takes them.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name that models use)
from torch import Tensor, nn

from tests.own import Built, model


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
        return torch.log_softmax(self.head(states[-1]) + hidden.mean(), dim=-1)


def lstm(batch_size: int = 2) -> Built:
    return Tagger(), (torch.randint(0, 50, (batch_size, 7)),)


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)


@model(
    *((2, 6, 16), (2, 9, 16)),
    attention=lambda: nn.MultiheadAttention(16, 4, batch_first=True),
    norm=lambda: nn.LayerNorm(16),
    encoder=_encoder,
)
def attention(m: Any, x: Tensor, memory: Tensor) -> Any:
    alone, _ = m.attention(x, x, x, need_weights=False)
    across, weights = m.attention(x, memory, memory)
    states = m.encoder(m.norm(alone + across))
    return F.scaled_dot_product_attention(states, states, states) * weights.mean()


def shared() -> Built:
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
    head = nn.Linear(8, 8, bias=False)
    head.weight = block[0].weight  # type: ignore[assignment]

    @model((4, 8), block=lambda: block, head=lambda: head)
    def shared(m: Any, x: Tensor) -> Any:
        for _ in range(3):
            x = m.block(x) + x
        return m.head(x)

    return shared()


@model((4, 8), tried=lambda: nn.Linear(3, 3), taken=lambda: nn.Linear(8, 8))
def recovering(m: Any, x: Tensor) -> Tensor:
    """Tries a layer that does not fit and goes on with one that does."""
    try:
        x = m.tried(x)
    except RuntimeError:
        x = m.taken(x)
    return x.relu()


@model(
    (2, 3, 16, 16),
    kernel=lambda: nn.Parameter(torch.randn(6, 3, 3, 3)),
    weight=lambda: nn.Parameter(torch.randn(10, 6)),
)
def functional(m: Any, x: Tensor) -> Tensor:
    x = F.conv2d(x, m.kernel, stride=2, padding=1)
    x = F.max_pool2d(F.relu(x), 2)
    x = torch.cat([x, x.neg()], dim=0)
    x = F.adaptive_avg_pool2d(x, 1).flatten(1)
    return torch.softmax(x @ m.weight.t(), dim=1)


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


@model(
    lambda: torch.randint(0, 9, (3, 4)),
    embedding=lambda: nn.Embedding(9, 4),
    linear=lambda: nn.Linear(4, 4),
)
def asks_for_values(m: Any, tokens: Tensor) -> Any:
    x = m.embedding(tokens)
    if x.max().item() < 90:  # by its weights: what hangs on tokens alone is known on meta
        x = m.linear(x)
    return x[tokens > 2].sum()


def scale_and_shift(x: Tensor) -> Tensor:
    return x * 2.0 + 1.0


def over_its_median(x: Tensor) -> Tensor:
    return x - x.nanmedian()


@model((2, 4), linear=lambda: nn.Linear(4, 4), scripted=lambda: torch.jit.script(scale_and_shift))
def scripted(m: Any, x: Tensor) -> Tensor:
    return torch.relu(m.scripted(m.linear(x)))


@model((2, 4), linear=lambda: nn.Linear(4, 4), scripted=lambda: torch.jit.script(over_its_median))
def scripted_beyond(m: Any, x: Tensor) -> Tensor:
    """Its scripted function calls an operator that no kind describes."""
    return torch.relu(m.scripted(m.linear(x)))


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


@model((2, 4), linear=lambda: nn.Linear(4, 4))
def _adds(m: Any, x: Tensor) -> Any:
    return m.linear(x + m.constant)


def with_constant() -> Built:
    module, given = _adds()
    module.constant = torch.ones(4)  # neither parameter nor buffer: stays where it was made
    return module, given


def lazy() -> Built:
    return nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2)), (torch.randn(3, 5),)


@model((2, 3), table=lambda: torch.arange(6.0))
def writes(m: Any, x: Tensor) -> Tensor:
    out = torch.zeros(2, 6, dtype=x.dtype, device=x.device)
    out[:, :3] = x
    out.add_(m.table).relu_()
    return F.gelu(out.view(-1))


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


@model((2, 4), inner=lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 5)))
def fails(m: Any, x: Tensor) -> Any:
    return m.inner(x)


@model((2, 4))
def _bad_view(m: Any, x: Tensor) -> Tensor:
    return x.view(-1, 3)


def fails_in_a_function() -> Built:
    wrapped = nn.Sequential()
    module, given = _bad_view()
    wrapped.add_module("inner", module)
    return wrapped, given


def bare() -> nn.Module:
    return nn.Linear(4, 4)


def not_a_module() -> int:
    return 3


@model(
    (2, 4, 2),
    weight=lambda: nn.Parameter(torch.randn(4, dtype=torch.complex64)),
    turn=lambda: torch.ones(4, dtype=torch.complex64),
)
def spectral(m: Any, x: Tensor) -> Tensor:
    """A Fourier layer: a complex parameter, and a complex buffer as rotary positions are kept."""
    return torch.view_as_real(torch.view_as_complex(x) * m.weight * m.turn)


def sized_by_a_tensor() -> Built:
    size: Any = torch.tensor(3)
    return model((2, 3))(lambda m, x: torch.zeros(2, size) + x)()


def ends_the_process() -> Built:
    raise SystemExit(7)


@model((2, 4))
def ends_in_forward(m: Any, x: Tensor) -> Any:
    sys.exit("enough")


def unhashable() -> Built:
    class Unhashable(nn.ReLU):
        __hash__ = None

    return Unhashable(), (torch.randn(2, 4),)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@model(lambda: Pair(torch.randn(2, 4), torch.randn(2, 3)), linear=lambda: nn.Linear(4, 4))
def named_tuple(m: Any, pair: Pair) -> Pair:
    """Reads the fields of a named tuple, and returns one."""
    return Pair(m.linear(pair.left), torch.relu(pair.right))


def _parts() -> nn.ModuleList:
    return nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])


@model((2, 4), parts=_parts)
def lazily(m: Any, x: Tensor) -> Any:
    """Returns what it has yet to compute."""
    return (part(x) for part in m.parts)


@model((2, 4), parts=_parts)
def threaded(m: Any, x: Tensor) -> Tensor:
    """Runs its parts in threads of its own, and adds up what they give."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda part: part(x), m.parts)
    return torch.add(first, second)


def always_trains() -> Built:
    class Stubborn(nn.Linear):
        def train(self, mode: bool = True) -> Any:
            raise NotImplementedError("no eval")

    return Stubborn(4, 4), (torch.randn(2, 4),)


@model((2, 4))
def casts_by_itself(m: Any, x: Tensor) -> Tensor:
    with torch.autocast("cuda"):
        return F.linear(x, x)


@model((2, 4), amp=lambda: torch.autocast("cpu"))
def casts_by_its_own(m: Any, x: Tensor) -> Tensor:
    with m.amp:
        return F.linear(x, x)


def prints() -> Built:
    print("while it is built")
    return _speaks()


@model((2, 4))
def _speaks(m: Any, x: Tensor) -> Tensor:
    print("while it runs")
    return x + 1


def image_in_float32() -> Built:
    return nn.Conv2d(3, 4, 3), (torch.randn(2, 3, 8, 8),)


COMPLETE = (
    *("lstm", "attention", "shared", "functional", "keywords", "asks_for_values"),
    *("inherited", "reparametrized", "with_constant", "writes", "recovering"),
    *("spectral", "prints", "image_in_float32", "named_tuple", "keeps"),
)
"""The builders whose every call a registered operator describes."""


def path(name: str) -> str:
    """Return a builder's name as the python source takes it."""
    return f"{__name__}:{name}"
