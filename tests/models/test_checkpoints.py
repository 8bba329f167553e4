"""Sizes of decoders by name: their numbers of parameters are those that were published."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opdb.models.checkpoints import CHECKPOINTS

transformers: Any = pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("name", "billions", "heads", "positions"),
    [  # heads: how many for keys and values, and how wide
        ("llama-3.2-1b", "1.24", (8, 64), 131072),
        ("llama-3.1-8b", "8.03", (8, 128), 131072),
        ("qwen3-8b", "8.19", (8, 128), 40960),
        ("qwen3-30b-a3b", "30.53", (4, 128), 40960),
        ("mistral-7b-v0.3", "7.25", (8, 128), 32768),
        ("mixtral-8x7b", "46.70", (8, 128), 32768),
    ],
)
def test_decoders_have_the_published_sizes(
    name: str, billions: str, heads: tuple[int, int], positions: int
) -> None:
    kind, sizes = CHECKPOINTS[name]
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert f"{model.num_parameters() / 1e9:.2f}" == billions
    rows = model.model.layers[0].self_attn.k_proj.out_features
    assert (config.num_key_value_heads, rows // config.num_key_value_heads) == heads
    assert config.max_position_embeddings == positions
    assert config.tie_word_embeddings == (name == "llama-3.2-1b")
    assert getattr(config, "sliding_window", None) is None
