"""Which backward passes read the seed of an attention's dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opdb.operators.backward import draws_in_attention

ATTENTIONS = ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_that_drops_is_found_behind_other_nodes(name: str, dropout: float) -> None:
    q = torch.zeros(2, 4, 16, 8, dtype=torch.half, device="meta", requires_grad=True)
    bias = (None, True) if "efficient" in name else ()
    outputs = getattr(torch.ops.aten, name)(q, q, q, *bias, dropout)
    assert draws_in_attention([outputs[0].transpose(1, 2).reshape(2, 16, 32)]) is (dropout > 0)


def test_dropout_elsewhere_keeps_its_mask() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LSTM(4, 4, 2, dropout=0.5))
    assert not draws_in_attention([module(torch.zeros(2, 3, 4))[0]])
