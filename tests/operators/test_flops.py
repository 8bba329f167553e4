"""FLOPs agree with torch's own counter wherever that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from opdb.kinds import get_kind
from opdb.operators import NoNotes, describe_module
from tests.operators.watching import watch

F = nn.functional


def meta(*shape: int) -> Tensor:
    return torch.empty(*shape, device="meta")


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: F.conv1d(meta(2, 4, 16), meta(8, 4, 3), meta(8)),
    "conv2d": lambda: F.conv2d(meta(2, 8, 17, 17), meta(16, 4, 3, 3), None, 2, 1, 1, 2),
    "conv2d same": lambda: F.conv2d(meta(2, 8, 17, 17), meta(16, 8, 3, 3), padding="same"),
    "depthwise": lambda: F.conv2d(meta(2, 8, 17, 17), meta(8, 1, 3, 3), groups=8),
    "conv3d": lambda: F.conv3d(meta(1, 2, 6, 6, 6), meta(4, 2, 3, 3, 3), dilation=2),
    "conv_transpose2d": lambda: F.conv_transpose2d(
        meta(2, 8, 7, 7), meta(8, 3, 4, 4), None, 2, 1, 0, 2
    ),
    "linear": lambda: F.linear(meta(2, 5, 7), meta(3, 7), meta(3)),
    "matmul": lambda: meta(2, 3, 4, 5) @ meta(2, 3, 5, 6),
    "matmul broadcast": lambda: meta(2, 1, 4, 5) @ meta(3, 5, 6),
    "matmul matrix": lambda: meta(2, 4, 5) @ meta(5, 6),
    "mm": lambda: torch.mm(meta(4, 5), meta(5, 6)),
    "bmm": lambda: torch.bmm(meta(2, 4, 5), meta(2, 5, 6)),
    "addmm": lambda: torch.addmm(meta(6), meta(4, 5), meta(5, 6)),
    "baddbmm": lambda: torch.baddbmm(meta(2, 4, 6), meta(2, 4, 5), meta(2, 5, 6)),
    "einsum": lambda: torch.einsum("bhid,bhjd->bhij", meta(2, 3, 4, 5), meta(2, 3, 6, 5)),
    "attention": lambda: F.scaled_dot_product_attention(
        meta(2, 3, 4, 8), meta(2, 3, 6, 8), meta(2, 3, 6, 8)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    configuration = watch(FUNCTIONS[name])[-1]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        FUNCTIONS[name]()
    assert get_kind(configuration.kind).flops(configuration) == counter.get_total_flops()


MODULES: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "self-attention": (nn.MultiheadAttention(8, 2, batch_first=True), (torch.ones(2, 5, 8),) * 3),
    "cross-attention": (
        nn.MultiheadAttention(8, 2),
        (torch.ones(5, 2, 8), torch.ones(7, 2, 8), torch.ones(7, 2, 8)),
    ),
    "encoder layer": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (torch.ones(2, 5, 8),),
    ),
    "decoder layer": (
        nn.TransformerDecoderLayer(8, 2, 16),
        (torch.ones(5, 2, 8), torch.ones(7, 2, 8)),
    ),
    "lstm": (nn.LSTM(4, 6, 2, bidirectional=True), (torch.ones(3, 2, 4),)),
    "gru": (nn.GRU(4, 6), (torch.ones(3, 2, 4),)),
    "rnn cell": (nn.RNNCell(4, 6), (torch.ones(2, 4),)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    # in training, where no fast path hides the products from the counter; on meta, where a
    # recurrent layer is spelled out in steps
    module, inputs = MODULES[name]
    module = module.to("meta").train()
    pairs = {id(t): t.to("meta") for t in inputs}
    args = tuple(pairs[id(t)] for t in inputs)
    configuration = describe_module(module, args, {}, NoNotes())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*args)
    assert get_kind(configuration.kind).flops(configuration) == counter.get_total_flops()
