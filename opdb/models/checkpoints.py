"""Published checkpoints whose sizes are known, as data: nothing is imported or downloaded."""

from __future__ import annotations

from collections.abc import Mapping

from opdb.records import Json

_BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
_ALBERT = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}

# Decoders. Listed is what decides the calls of a pass; the base and scaling of rotary embeddings
# and the epsilon of a norm change no call. What is not listed is the default of transformers'
# configuration class. Sources: configurations published with the checkpoints (config.json), as
# LitGPT 293089e and transformers' own defaults repeat them; checked by numbers of parameters
# (tests/models/test_checkpoints.py).
_LLAMA_3 = {"vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_LLAMA_3_2_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "tie_word_embeddings": True,
}
CHECKPOINTS: Mapping[str, tuple[str, Mapping[str, Json]]] = {
    "bert-base": ("bert", {}),
    "bert-base-uncased": ("bert", {}),
    "bert-base-cased": ("bert", {"vocab_size": 28996}),
    "bert-large-uncased": ("bert", _BERT_LARGE),
    "distilbert-base-uncased": ("distilbert", {}),
    "roberta-base": ("roberta", _ROBERTA),
    "roberta-large": ("roberta", {**_BERT_LARGE, **_ROBERTA}),
    "albert-base-v2": ("albert", _ALBERT),
    "gpt2": ("gpt2", {}),
    "gpt2-medium": ("gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": ("gpt2", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2-xl": ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "opt-125m": ("opt", {}),
    "t5-small": ("t5", {}),
    "t5-base": ("t5", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "tinyllama-1.1b": (
        "llama",
        {
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
        },
    ),
    "llama-3.2-1b": ("llama", {**_LLAMA_3, **_LLAMA_3_2_1B}),
    "llama-3.1-8b": ("llama", {**_LLAMA_3, "intermediate_size": 14336}),
    "qwen3-8b": (
        "qwen3",
        {
            "num_hidden_layers": 36,
            "num_key_value_heads": 8,
            "intermediate_size": 12288,
            "max_position_embeddings": 40960,
        },
    ),
    "qwen3-30b-a3b": (
        "qwen3_moe",
        {
            "num_hidden_layers": 48,
            "head_dim": 128,  # not of the class, which then takes 2048 / 32 = 64
            "max_position_embeddings": 40960,
        },
    ),
    "mistral-7b-v0.3": (  # no window: the class's default is that of v0.1
        "mistral",
        {"vocab_size": 32768, "sliding_window": None, "max_position_embeddings": 32768},
    ),
    "mixtral-8x7b": ("mixtral", {"max_position_embeddings": 32768}),
    "vit-base-patch16-224": ("vit", {}),
}
"""Names of published checkpoints: the model type, and what differs from its configuration."""
