"""Prefills, decoding steps and whole generations of causal decoders, as modules that make one.

The cache is the library's own (transformers' StaticCache or DynamicCache). It is made and filled in
the first pass; every later pass finds it as the pass before did, so that a step may be repeated, or
replayed as a CUDA graph, any number of times at one context without walking beyond the cache. The
positions that a static cache counts on the device are set by the first call of each pass: one copy
of a number a layer.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.models.source import Blueprint
from opdb.records import Json

_KNOWN_LAYERS = frozenset(
    ("DynamicLayer", "DynamicSlidingWindowLayer", "StaticLayer", "StaticSlidingWindowLayer")
)
"""The classes of transformers' cache layers whose state is keys, values and a length alone."""

_COUNTER_STRIDE = 64
"""How many int64 lie between two layers' counters: as far apart as the library's own, which are
allocations of 512 bytes each. Kernels of unaligned memory would be others."""

_CACHE_ARGUMENTS = ("cache", "past_key_values")
"""What a decoder's forward calls its cache: since transformers 5.24, and before."""

_LENGTHS = ("cumulative_length", "cumulative_length_int")
"""The attributes in which such layers count positions."""


class GenerationPass(nn.Module):
    """One prefill, or one decoding step, of a causal decoder; returns the last token's logits.

    `generation` is the request's (see `ModelRequest.generation`).
    """

    def __init__(self, name: str, decoder: nn.Module, generation: Json, *, filled: int) -> None:
        super().__init__()
        self.decoder = decoder
        self._name = name
        self._static = generation["cache"] == "static"
        self._length = generation.get("cache_length")
        self._filled = filled
        takes = inspect.signature(decoder.forward).parameters
        self._argument = next(name for name in _CACHE_ARGUMENTS if name in takes)
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._cache: Any = None
        self._layers: list[tuple[Any, dict[str, Any]]] = []
        self._counters = self._start = torch.empty(0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the last token, for tokens of shape [batch, tokens]."""
        if self._cache is None:
            self._cache = self._made(tokens)
        self._restore()
        logits: Tensor = self._run(tokens, self._cache).logits
        return logits

    def _run(self, tokens: Tensor, cache: Any) -> Any:
        given = {self._argument: cache, **self._options}
        return self.decoder(input_ids=tokens, use_cache=True, **given)

    def _restore(self) -> None:
        """Bring the cache back to what it was before a pass."""
        if self._static:
            self._counters.copy_(self._start)
        for layer, state in self._layers:
            vars(layer).update(state)

    def _made(self, tokens: Tensor) -> Any:
        """Make the cache and fill it with random values.

        Raises:
            InputError: the model keeps no cache, or one of a family that opdb does not know.
        """
        cache = _new_cache(self.decoder, self._length)
        _check_known(self._name, cache.layers)
        output = self._run(tokens[:, :1], cache)  # the library knows the shapes of keys and values
        if not isinstance(getattr(output, "logits", None), Tensor):
            raise InputError(f"{self._name!r} returns no logits: it is no causal decoder")
        layers = list(cache.layers)
        if not layers or not all(each.is_initialized for each in layers):
            raise InputError(f"{self._name!r} fills no cache of keys and values: no causal decoder")
        device = layers[0].keys.device
        if self._static:
            counters = (len(layers), _COUNTER_STRIDE)
            self._counters = torch.zeros(counters, dtype=torch.int64, device=device)
            self._start = torch.full_like(self._counters, self._filled)
            self.register_buffer("counters", self._counters)
            self.register_buffer("start", self._start)
        self._layers = [(each, self._state(number, each)) for number, each in enumerate(layers)]
        return cache

    def _state(self, number: int, layer: Any) -> dict[str, Any]:
        """Return the attributes of a layer before a pass; its keys and values become buffers."""
        counted: dict[str, Any] = {
            name: self._filled for name in _LENGTHS if isinstance(vars(layer).get(name), int)
        }
        if isinstance(vars(layer).get("cumulative_length"), Tensor):
            counted["cumulative_length"] = self._counters[number, 0]
        if self._filled == 0 and not self._static:
            return {"keys": None, "values": None, "is_initialized": False, **counted}
        held = {}
        for name in ("keys", "values"):
            tensor = getattr(layer, name)
            if not self._static:
                window = getattr(layer, "sliding_window", None)
                most = self._filled if window is None else min(self._filled, window - 1)
                tensor = tensor.new_empty((*tensor.shape[:2], most, tensor.shape[3]))
            if self._filled:
                tensor.normal_()
            self.register_buffer(f"{name}_{number}", tensor)
            held[name] = tensor
        return {**held, "is_initialized": True, **counted}


class BrokenOffError(Exception):
    """Raised by who watches a whole generation, to break it off."""


class WholeGeneration(nn.Module):
    """A whole generation by transformers' `generate`; returns all tokens, the prompt's included.

    The likeliest token is taken each time, no token ends a sequence, and nothing is compiled, so
    that each generation makes the same calls. `generation` is as in `GenerationPass`; it ends at as
    many tokens for any prompt, so that a longer prompt leads to the later steps. One that is broken
    off (`BrokenOffError`) returns the prompt.

    Raises:
        InputError: the model has no `generate`, or a cache of a family that opdb does not know.
    """

    def __init__(self, name: str, decoder: nn.Module, generation: Json, *, prompt: int) -> None:
        super().__init__()
        _check_known(name, _new_cache(decoder, None).layers)
        config: Any = getattr(decoder, "generation_config", None)
        if config is None or not callable(getattr(decoder, "generate", None)):
            raise InputError(f"{name!r} has no generate of transformers")
        self.decoder: Any = decoder
        for each in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(config, each, None)
        self._tokens = prompt + generation["max_new_tokens"]
        self._options: dict[str, Any] = {"do_sample": False, "disable_compile": True}
        if generation["cache"] == "static":
            self._options["cache_implementation"] = "static"

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens of prompts and answers, for prompts of shape [batch, tokens]."""
        left = self._tokens - tokens.shape[1]
        try:
            found: Tensor = self.decoder.generate(
                tokens, use_cache=True, max_new_tokens=left, **self._options
            )
        except BrokenOffError:
            return tokens
        return found


def _new_cache(decoder: Any, length: int | None) -> Any:
    """Return an empty cache of the library: static of so many positions, or dynamic (None)."""
    from transformers import DynamicCache, StaticCache

    if length is not None:
        return StaticCache(config=decoder.config, max_cache_len=length)
    return DynamicCache(config=decoder.config)


def _check_known(name: str, layers: list[Any]) -> None:
    """Check that the layers of a cache are of a known family.

    Raises:
        InputError: one is not.
    """
    others = {type(each).__name__ for each in layers} - _KNOWN_LAYERS
    if others:
        raise InputError(
            f"{name!r} keeps a cache of a family that opdb does not know "
            f"({', '.join(sorted(others))}); known: {', '.join(sorted(_KNOWN_LAYERS))}"
        )


def as_generation(blueprint: Blueprint, request: ModelRequest) -> Blueprint:
    """Return a decoder's blueprint made one prefill or one decoding step, as the request says.

    Raises:
        InputError: the model is no causal decoder of the kind that transformers builds, or the pass
            ends beyond the model's positions.
    """
    module, generation = blueprint.module, request.generation
    assert generation is not None
    config: Any = getattr(module, "config", None)
    takes = inspect.signature(module.forward).parameters
    if config is None or not hasattr(config, "get_text_config"):
        raise InputError(f"{request.name!r} is no causal decoder of transformers")
    if config.is_encoder_decoder or not any(name in takes for name in _CACHE_ARGUMENTS):
        raise InputError(f"{request.name!r} takes no past_key_values: it is no causal decoder")
    text = config.get_text_config(decoder=True)
    tokens, filled = request.new_tokens, request.filled
    positions: int | None = getattr(text, "max_position_embeddings", None)
    last = max(
        filled + tokens + generation.get("max_new_tokens", 0), generation.get("cache_length") or 0
    )
    if positions is not None and last > positions:
        raise InputError(
            f"{request.name!r} has {positions} positions, not {last}; give a shorter context, "
            "prompt or cache"
        )
    inputs: Json = {
        "args": [
            {
                "shape": ["batch", tokens],
                "dtype": "int64",
                "values": {"range": [0, text.vocab_size]},
            }
        ]
    }
    _set_experts(request, module)
    if request.phase == "generate":
        made: nn.Module = WholeGeneration(request.name, module, generation, prompt=tokens)
    else:
        made = GenerationPass(request.name, module, generation, filled=filled)
    return replace(blueprint, module=made, inputs=inputs, example=None)


def _set_experts(request: ModelRequest, decoder: Any) -> None:
    """Choose how a mixture's experts are multiplied: as asked, else as `generate` does on a GPU.

    Raises:
        InputError: it is asked for of a model without experts that can be multiplied so.
    """
    has = getattr(decoder, "_can_set_experts_implementation", lambda: False)()
    if not has:
        if request.experts or request.imbalance:
            raise InputError(f"{request.name!r} is no mixture of experts of transformers")
        return
    if request.phase == "generate":  # which switches by itself on a GPU
        if request.experts is not None:
            decoder.set_experts_implementation(request.experts)
        return
    usual = "grouped_mm" if request.phase == "prefill" else "batched_mm"
    decoder.set_experts_implementation(request.experts or usual)
