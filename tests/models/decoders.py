"""Small causal decoders of transformers, as a user's own models."""

from __future__ import annotations

from typing import Any

from torch import nn

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}


def _built(kind: str, **others: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    return auto.from_config(AutoConfig.for_model(kind, **{**SIZES, **others}))


def llama() -> nn.Module:
    """Return a Llama of two layers, four heads that share two pairs of keys and values."""
    return _built("llama")


def windowed() -> nn.Module:
    """Return a Mistral whose attention sees 16 positions."""
    return _built("mistral", sliding_window=16)


def experts() -> nn.Module:
    """Return a Mixtral whose tokens go to 2 of 8 experts."""
    return _built("mixtral", num_local_experts=8, num_experts_per_tok=2)


def odd() -> nn.Module:
    """Return a Llama whose gates have 100 features, which are no multiple of 16."""
    return _built("llama", intermediate_size=100)


def encoder() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    return BertModel(config)


def linear() -> nn.Module:
    """Return a Qwen3-Next, one of whose two layers keeps a state in place of keys and values."""
    layers = ["linear_attention", "full_attention"]
    return _built("qwen3_next", layer_types=layers, num_experts=4, head_dim=16)
