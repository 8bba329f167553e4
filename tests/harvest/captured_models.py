"""Models that ask whether a CUDA graph captures them, as the python source takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.cuda import is_current_stream_capturing as imported_by_name
from torch.nn.functional import scaled_dot_product_attention

Asks = Callable[[], bool]
Built = tuple[Any, ...]


class Causal(nn.Module):
    """Attention that makes its causal mask itself where it is captured."""

    def __init__(self, asks: Asks) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 48)
        self._asks = asks

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.linear(x).chunk(3, dim=-1)
        if not self._asks():
            return scaled_dot_product_attention(query, key, value, is_causal=True)
        places = torch.arange(x.shape[1], device=x.device)
        mask = places[:, None] >= places[None, :]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)


class Asking(nn.Module):
    """A layer, and what is done with the answer."""

    def __init__(self, does: Callable[[Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self._does = does

    def forward(self, x: Tensor) -> Tensor:
        return self._does(self.linear(x), torch.cuda.is_current_stream_capturing())


def _asked() -> bool:
    return torch.cuda.is_current_stream_capturing()


def causal() -> Built:
    return Causal(_asked), (torch.randn(2, 6, 16),)


def causal_by_name() -> Built:
    return Causal(imported_by_name), (torch.randn(2, 6, 16),)


def never_asks() -> Built:
    return Causal(lambda: False), (torch.randn(2, 6, 16),)


def asks_for_nothing() -> Built:
    return Asking(lambda x, captured: x), (torch.randn(2, 8),)


def fails_captured() -> Built:
    def does(x: Tensor, captured: bool) -> Tensor:
        if captured:
            raise NotImplementedError("not in a graph")
        return x

    return Asking(does), (torch.randn(2, 8),)


def reads_values_in_eager() -> Built:
    """A model that looks at values, as one that checks its padding, unless it is captured."""

    def does(x: Tensor, captured: bool) -> Tensor:
        return x if captured or bool((x > 0).all()) else x + 1

    return Asking(does), (torch.randn(2, 8),)


def remembers() -> Built:
    """A model that makes something in its first pass alone, and asks for nothing."""
    made: list[Tensor] = []

    def does(x: Tensor, captured: bool) -> Tensor:
        if not made:
            made.append(torch.tanh(x))
        return x + made[0]

    return Asking(does), (torch.randn(2, 8),)


def gpt2(padded: bool = False) -> Built:
    """A small GPT-2 of transformers, with a mask of its padding or without."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32)
    tokens = torch.randint(0, 64, (2, 16))
    mask = {"attention_mask": torch.ones(2, 16, dtype=torch.int64)} if padded else {}
    return GPT2Model(config), (tokens,), mask


def padded_gpt2() -> Built:
    return gpt2(padded=True)


def path(name: str) -> str:
    """Return a builder's name as the python source takes it."""
    return f"{__name__}:{name}"
