"""What the UNets of `measurements/diffusion` call, where diffusers is installed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.spec import ModelSpec
from tests.harvest.test_round_trip import mismatches

pytest.importorskip("diffusers")

ROOT = Path(__file__).parents[2]
PARAMETERS = {"stable_diffusion_1_5": 859_520_964, "stable_diffusion_xl": 2_567_463_684}
BLOCKS = {"stable_diffusion_1_5": 16, "stable_diffusion_xl": 70}
"""Transformer blocks: each has two attentions, three layer norms and one gated GELU."""


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def request_of(name: str, dtype: str) -> ModelSpec:
    return ModelSpec(f"measurements.diffusion.unets:{name}", batch_size=2, dtype=dtype)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_unets_have_their_published_sizes(name: str) -> None:
    loaded = load(request_of(name, "float16"), device="meta")
    assert sum(each.numel() for each in loaded.module.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BLOCKS)
def test_every_call_is_described_and_built_again(name: str, dtype: str) -> None:
    workload = harvest(request_of(name, dtype))
    assert workload.unsupported == {}
    kinds = Counter(call.configuration.kind for call in workload.calls)
    per_block = {"scaled_dot_product_attention": 2, "layer_norm": 3, "gelu": 1}
    assert {kind: kinds[kind] for kind in per_block} == {
        kind: number * BLOCKS[name] for kind, number in per_block.items()
    }
    assert mismatches(request_of(name, dtype), "meta") == []
