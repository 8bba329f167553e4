"""Models that ask whether a CUDA graph captures them, as the python source takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.cuda import is_current_stream_capturing as imported_by_name
from torch.nn.functional import scaled_dot_product_attention

from tests.own import Builder, model


def _causal(asks: Callable[[], bool]) -> Builder:
    @model((2, 6, 16), linear=lambda: nn.Linear(16, 48))
    def causal(m: Any, x: Tensor) -> Tensor:
        """Attend; make the causal mask where it is captured."""
        query, key, value = m.linear(x).chunk(3, dim=-1)
        if not asks():
            return scaled_dot_product_attention(query, key, value, is_causal=True)
        places = torch.arange(x.shape[1], device=x.device)
        mask = places[:, None] >= places[None, :]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    return causal


def _asking(does: Callable[[Tensor, bool], Tensor]) -> Builder:
    """A layer, and what is done with the answer."""

    @model((2, 8), linear=lambda: nn.Linear(8, 8))
    def asking(m: Any, x: Tensor) -> Tensor:
        return does(m.linear(x), torch.cuda.is_current_stream_capturing())

    return asking


causal = _causal(lambda: torch.cuda.is_current_stream_capturing())
causal_by_name = _causal(imported_by_name)


@_asking
def fails_captured(x: Tensor, captured: bool) -> Tensor:
    if captured:
        raise NotImplementedError("not in a graph")
    return x


@_asking
def reads_values_in_eager(x: Tensor, captured: bool) -> Tensor:
    """A model that looks at values, as one that checks its padding, unless it is captured."""
    return x if captured or bool((x > 0).all()) else x + 1


def path(name: str) -> str:
    """Return a builder's name as the python source takes it."""
    return f"{__name__}:{name}"
