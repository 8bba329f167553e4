"""Published checkpoints whose sizes are known, as data: nothing is imported or downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from opdb.records import Json

_BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
_ALBERT = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}


def _decoder(
    hidden: int,
    layers: int,
    heads: tuple[int, int],
    mlp: int,
    *,
    vocabulary: int,
    positions: int,
    **more: Json,
) -> Mapping[str, Json]:
    """Return what a decoder's configuration holds; `heads` of queries, and of keys and values."""
    return {
        "dtype": "bfloat16",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": mlp,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        **more,
    }


# The base and scaling of rotary embeddings and the epsilon of a norm change no call, so they are
# not listed; what is not, is the default of transformers' configuration class. Source:
# configurations published with the checkpoints (config.json), as LitGPT's config.py repeats them
# (with Qwen3 MoE and Mixtral from transformers' own defaults). The dtype is `torch_dtype` (now
# `dtype`) of the same config.json, of TinyLlama's the chat model's. Of Gemma 2 it is that of the
# instruction-tuned models and of the card ("native weights ... exported in bfloat16"); the files of
# its base models hold the same numbers as float32.
_LLAMA_2 = partial(_decoder, vocabulary=32000, positions=4096, dtype="float16")
_LLAMA_3 = partial(_decoder, vocabulary=128256, positions=131072)
_SMOLLM2 = partial(_decoder, vocabulary=49152, positions=8192, tie_word_embeddings=True)
_QWEN2_5 = partial(_decoder, vocabulary=152064, positions=131072)
_SMALL_QWEN2_5 = partial(_decoder, vocabulary=151936, positions=32768, tie_word_embeddings=True)
_QWEN3 = partial(_decoder, vocabulary=151936, positions=40960, head_dim=128)
_MISTRAL = partial(_decoder, vocabulary=32768, positions=32768)
_GEMMA2 = partial(_decoder, vocabulary=256000, positions=8192)
_PHI = partial(_decoder, vocabulary=32064, positions=4096)

DECODERS: Mapping[str, tuple[str, Mapping[str, Json]]] = {
    "tinyllama-1.1b": (
        "llama",
        _LLAMA_2(2048, 22, (32, 4), 5632, positions=2048, dtype="bfloat16"),
    ),
    "llama-2-7b": ("llama", _LLAMA_2(4096, 32, (32, 32), 11008)),
    "llama-2-13b": ("llama", _LLAMA_2(5120, 40, (40, 40), 13824)),
    "llama-2-70b": ("llama", _LLAMA_2(8192, 80, (64, 8), 28672)),
    "llama-3-8b": ("llama", _LLAMA_3(4096, 32, (32, 8), 14336, positions=8192)),
    "llama-3-70b": ("llama", _LLAMA_3(8192, 80, (64, 8), 28672, positions=8192)),
    "llama-3.1-8b": ("llama", _LLAMA_3(4096, 32, (32, 8), 14336)),
    "llama-3.1-70b": ("llama", _LLAMA_3(8192, 80, (64, 8), 28672)),
    "llama-3.1-405b": ("llama", _LLAMA_3(16384, 126, (128, 8), 53248)),
    "llama-3.2-1b": ("llama", _LLAMA_3(2048, 16, (32, 8), 8192, tie_word_embeddings=True)),
    "llama-3.2-3b": ("llama", _LLAMA_3(3072, 28, (24, 8), 8192, tie_word_embeddings=True)),
    "llama-3.3-70b": ("llama", _LLAMA_3(8192, 80, (64, 8), 28672)),
    "smollm2-135m": ("llama", _SMOLLM2(576, 30, (9, 3), 1536)),
    "smollm2-360m": ("llama", _SMOLLM2(960, 32, (15, 5), 2560)),
    "smollm2-1.7b": ("llama", _SMOLLM2(2048, 24, (32, 32), 8192)),
    "qwen2.5-0.5b": ("qwen2", _SMALL_QWEN2_5(896, 24, (14, 2), 4864)),
    "qwen2.5-1.5b": ("qwen2", _SMALL_QWEN2_5(1536, 28, (12, 2), 8960, positions=131072)),
    "qwen2.5-3b": ("qwen2", _SMALL_QWEN2_5(2048, 36, (16, 2), 11008)),
    "qwen2.5-7b": ("qwen2", _QWEN2_5(3584, 28, (28, 4), 18944)),
    "qwen2.5-14b": ("qwen2", _QWEN2_5(5120, 48, (40, 8), 13824)),
    "qwen2.5-32b": ("qwen2", _QWEN2_5(5120, 64, (40, 8), 27648)),
    "qwen2.5-72b": ("qwen2", _QWEN2_5(8192, 80, (64, 8), 29568)),
    "qwen3-0.6b": ("qwen3", _QWEN3(1024, 28, (16, 8), 3072, tie_word_embeddings=True)),
    "qwen3-1.7b": ("qwen3", _QWEN3(2048, 28, (16, 8), 6144, tie_word_embeddings=True)),
    "qwen3-4b": ("qwen3", _QWEN3(2560, 36, (32, 8), 9728, tie_word_embeddings=True)),
    "qwen3-8b": ("qwen3", _QWEN3(4096, 36, (32, 8), 12288)),
    "qwen3-14b": ("qwen3", _QWEN3(5120, 40, (40, 8), 17408)),
    "qwen3-32b": ("qwen3", _QWEN3(5120, 64, (64, 8), 25600)),
    "qwen3-30b-a3b": ("qwen3_moe", _QWEN3(2048, 48, (32, 4), 6144)),
    # No window: the class's default is that of v0.1.
    "mistral-7b-v0.3": ("mistral", _MISTRAL(4096, 32, (32, 8), 14336, sliding_window=None)),
    "mixtral-8x7b": ("mixtral", _MISTRAL(4096, 32, (32, 8), 14336, vocabulary=32000)),
    "gemma-2-2b": ("gemma2", _GEMMA2(2304, 26, (8, 4), 9216)),
    "gemma-2-9b": ("gemma2", _GEMMA2(3584, 42, (16, 8), 14336)),
    "gemma-2-27b": (
        "gemma2",
        _GEMMA2(4608, 46, (32, 16), 36864, head_dim=128, query_pre_attn_scalar=144),
    ),
    "phi-3.5-mini": ("phi3", _PHI(3072, 32, (32, 32), 8192, positions=131072)),
    "phi-4": ("phi3", _PHI(5120, 40, (40, 10), 17920, vocabulary=100352, positions=16384)),
}
"""Names of published decoders: the model type, and its sizes."""

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
    "opt-125m": ("opt", {"dtype": "float16"}),
    "t5-small": ("t5", {}),
    "t5-base": ("t5", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    **DECODERS,
    "vit-base-patch16-224": ("vit", {}),
}
"""Names of published checkpoints: the model type, and what differs from its configuration.

Where `dtype` is not among it, the checkpoint's config.json says none and its weights are float32.
"""

BARE = "-bare"  # behind a causal decoder's name: its body, without the head


def checkpoint(name: str) -> tuple[str, Mapping[str, Json]] | None:
    """Return the model type and sizes of a checkpoint, or of one's body; None of other names.

    It may be spelled with underscores, as files are: "bert_base".
    """
    return CHECKPOINTS.get(name.replace("_", "-").removesuffix(BARE))


def of_hub(name: str) -> str | None:
    """Return the checkpoint that a hub's name, "meta-llama/Llama-3.1-8B", means; None of others.

    Models that were tuned on instructions have the sizes of their base models.
    """
    owner, _, rest = name.rpartition("/")
    found = rest.lower().removeprefix("meta-")
    for ending in ("-instruct", "-hf", "-it", "-v0.1"):
        found = found.removesuffix(ending)
    return found if owner and found in CHECKPOINTS else None


def published_dtype(name: str) -> str | None:
    """Return the dtype in which a checkpoint is published; None of a name that is none."""
    found = checkpoint(name)
    return None if found is None else str(found[1].get("dtype", "float32"))
