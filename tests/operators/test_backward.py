"""Backward passes: which read the seed of an attention's dropout; what surrounds them."""

from __future__ import annotations

import pytest
import torch

from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.operators import build
from opdb.operators.call import draws_in_attention
from opdb.spec import ModelSpec

ATTENTIONS = ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_that_drops_is_found_behind_other_nodes(name: str, dropout: float) -> None:
    q = torch.zeros(2, 4, 16, 8, dtype=torch.half, device="meta", requires_grad=True)
    bias = (None, True) if "efficient" in name else ()
    outputs = getattr(torch.ops.aten, name)(q, q, q, *bias, dropout)
    assert draws_in_attention([outputs[0].transpose(1, 2).reshape(2, 16, 32)]) is (dropout > 0)


def test_a_backward_pass_runs_outside_autocast() -> None:
    asked = checked(ModelSpec("mlp", phase="training", batch_size=2, autocast="bfloat16"))
    cast = [c for c in harvest(asked).occurrences() if c.kind == "linear" and c.autocast]
    seen = {}
    for configuration in cast:
        call = build(configuration, device="cpu")
        with call.modes():
            seen[configuration.pass_name] = torch.is_autocast_enabled("cpu")
    assert seen == {"forward": True, "backward": False}
