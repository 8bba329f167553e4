"""Sizes of decoders by name: their numbers of parameters are those that were published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from opdb.checkpoints import DECODERS, published_dtype
from opdb.records import Json
from opdb.spec import ModelSpec

transformers: Any = pytest.importorskip("transformers")

PUBLISHED = {
    # billions of parameters; heads of keys and values, and how wide; positions
    "tinyllama-1.1b": ("1.10", (4, 64), 2048),
    "llama-2-7b": ("6.74", (32, 128), 4096),
    "llama-2-13b": ("13.02", (40, 128), 4096),
    "llama-2-70b": ("68.98", (8, 128), 4096),
    "llama-3-8b": ("8.03", (8, 128), 8192),
    "llama-3-70b": ("70.55", (8, 128), 8192),
    "llama-3.1-8b": ("8.03", (8, 128), 131072),
    "llama-3.1-70b": ("70.55", (8, 128), 131072),
    "llama-3.1-405b": ("405.85", (8, 128), 131072),
    "llama-3.2-1b": ("1.24", (8, 64), 131072),
    "llama-3.2-3b": ("3.21", (8, 128), 131072),
    "llama-3.3-70b": ("70.55", (8, 128), 131072),
    "smollm2-135m": ("0.13", (3, 64), 8192),
    "smollm2-360m": ("0.36", (5, 64), 8192),
    "smollm2-1.7b": ("1.71", (32, 64), 8192),
    "qwen2.5-0.5b": ("0.49", (2, 64), 32768),
    "qwen2.5-1.5b": ("1.54", (2, 128), 131072),
    "qwen2.5-3b": ("3.09", (2, 128), 32768),
    "qwen2.5-7b": ("7.62", (4, 128), 131072),
    "qwen2.5-14b": ("14.77", (8, 128), 131072),
    "qwen2.5-32b": ("32.76", (8, 128), 131072),
    "qwen2.5-72b": ("72.71", (8, 128), 131072),
    "qwen3-0.6b": ("0.60", (8, 128), 40960),
    "qwen3-1.7b": ("1.72", (8, 128), 40960),
    "qwen3-4b": ("4.02", (8, 128), 40960),
    "qwen3-8b": ("8.19", (8, 128), 40960),
    "qwen3-14b": ("14.77", (8, 128), 40960),
    "qwen3-32b": ("32.76", (8, 128), 40960),
    "qwen3-30b-a3b": ("30.53", (4, 128), 40960),
    "mistral-7b-v0.3": ("7.25", (8, 128), 32768),
    "mixtral-8x7b": ("46.70", (8, 128), 32768),
    "gemma-2-2b": ("2.61", (4, 256), 8192),
    "gemma-2-9b": ("9.24", (8, 256), 8192),
    "gemma-2-27b": ("27.23", (16, 128), 8192),
    "phi-3.5-mini": ("3.82", (32, 96), 131072),
    "phi-4": ("14.66", (10, 128), 16384),
}
TIED = {
    *("llama-3.2-1b", "llama-3.2-3b", "smollm2-135m", "smollm2-360m", "smollm2-1.7b"),
    *("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"),
    *("gemma-2-2b", "gemma-2-9b", "gemma-2-27b"),
}


def test_decoders_have_the_published_sizes() -> None:
    assert {name: _sizes(name) for name in DECODERS} == PUBLISHED


def _sizes(name: str) -> tuple[str, tuple[int, int], int]:
    kind, sizes = DECODERS[name]
    one, two = (_model(kind, {**sizes, "num_hidden_layers": layers}) for layers in (1, 2))
    layer = two.num_parameters() - one.num_parameters()
    count = one.num_parameters() + (sizes["num_hidden_layers"] - 1) * layer
    config, attention = one.config, one.model.layers[0].self_attn
    width = attention.o_proj.in_features // config.num_attention_heads
    assert (name in TIED) == config.tie_word_embeddings
    return (
        f"{count / 1e9:.2f}",
        (config.num_key_value_heads, width),
        config.max_position_embeddings,
    )


def _model(kind: str, sizes: Mapping[str, Json]) -> Any:
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "bfloat16") for name in ("llama-3-8b", "llama-3.1-8b", "llama-3.2-1b-bare")),
        *((name, "bfloat16") for name in ("qwen2.5-7b", "qwen3-30b-a3b", "mistral-7b-v0.3")),
        *((name, "bfloat16") for name in ("mixtral-8x7b", "gemma-2-9b", "phi-4", "smollm2-135m")),
        *((name, "float16") for name in ("llama-2-7b", "llama-2-70b", "opt-125m", "opt_125m")),
        *((name, "float32") for name in ("gpt2", "gpt2-xl-bare", "bert_base", "t5-small")),
        *((name, None) for name in ("llama", "gpt_neo-bare", "resnet50", "package.module:build")),
    ],
)
def test_a_name_means_the_dtype_that_its_checkpoint_is_published_in(
    name: str, dtype: str | None
) -> None:
    assert published_dtype(name) == dtype
    if ":" not in name:
        assert ModelSpec(name).dtype == (dtype or "float32")
        assert ModelSpec(name, dtype="float64").dtype == "float64"
