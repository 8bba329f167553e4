"""The models of transformers, built from their configuration with random weights.

A name is one of transformers' model types ("bert": its configuration as it is), or that of a
checkpoint whose sizes are listed in `opdb.checkpoints`. Nothing is ever downloaded. The name of a
causal decoder is the decoder with its head, in every phase; with "-bare" behind it, in inference
and training, it is the model without the head. Any other name is the base model.

The pass is that of a batch without padding: text models are given input_ids alone. A mask of ones
would change no number and no attention kernel, since transformers looks whether anything is masked
and drops it; but that look makes the host wait for the device in every pass, and inside a CUDA
graph the mask is kept. Causal models fill their cache of keys and values, as is their default:
without one they look for packed sequences, with the same two consequences."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opdb.checkpoints import BARE, checkpoint
from opdb.errors import InputError
from opdb.models import Blueprint
from opdb.models.catalogue import IMAGE_SIDE, version_of
from opdb.packaging import install
from opdb.records import Json
from opdb.spec import TOKENS, ModelSpec


def model_types() -> tuple[str, ...]:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return tuple(name for name in CONFIG_MAPPING if name in MODEL_MAPPING_NAMES)


def build(request: ModelSpec) -> Blueprint:
    """Build a model of `AutoModel` or `AutoModelForCausalLM`.

    An input size is the number of tokens, or an image's shape.
    """
    if version_of("transformers") is None:
        raise InputError(f"{request.name!r} is built by transformers; {install('transformers')}")
    with _offline():
        import transformers

        config = _configuration(request)
        auto: Any = transformers.AutoModel  # its methods have no types
        if _decodes(request, config):
            auto = transformers.AutoModelForCausalLM
        module: Any = auto.from_config(config, dtype=getattr(torch, str(request.dtype)))
        if _encodes(module):
            module = module.base_model
    given = request.generation is not None or request.inputs is not None
    inputs = None if given else _inputs(module, config, request)
    return Blueprint(module, inputs=inputs, in_dtype=True)


NAMES = {"transformers": model_types}
SOURCES = {"transformers": build}


@contextmanager
def _offline() -> Iterator[None]:
    """Refuse every download: some configurations name a backbone's weights."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _decodes(request: ModelSpec, config: Any) -> bool:
    """Return whether a request means a causal decoder with its head."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    causal: Any = AutoModelForCausalLM
    masked: Any = AutoModelForMaskedLM  # such a model decodes where its configuration says so
    encodes = type(config) in masked._model_mapping and not getattr(config, "is_decoder", False)
    decodes = type(config) in causal._model_mapping and not (config.is_encoder_decoder or encodes)
    bare, generates = request.name.endswith(BARE), request.generation is not None
    if (bare and generates) or ((bare or generates) and not decodes):
        lacks = f"phase {request.phase}" if generates else "head to leave out"
        raise InputError(f"{request.name!r} is no causal decoder: it has no {lacks}")
    return decodes and not bare


def _encodes(module: nn.Module) -> bool:
    """Return whether no attention of a model is causal, as its configuration says in two places."""
    causal = {getattr(part, "is_causal", None) for part in module.modules()} - {None}
    return causal == {False} and getattr(module.config, "is_decoder", None) is False


def _configuration(request: ModelSpec) -> Any:
    from transformers import AutoConfig

    kind, overrides = checkpoint(request.name) or (request.name.removesuffix(BARE), {})
    config = AutoConfig.for_model(kind, **overrides)
    size = request.input_size
    if size is not None and len(size) == 3 and hasattr(config, "image_size"):
        config.image_size = size[1] if size[1] == size[2] else tuple(size[1:])
    return config


def _inputs(module: Any, config: Any, request: ModelSpec) -> dict[str, Json]:
    takes = inspect.signature(module.forward).parameters
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if module.main_input_name == "pixel_values":
        return {"args": [_image(config, request.input_size)]}
    # Some tokens may stand for images: their number depends on the images.
    images = ("image_token_id", "image_token_index")
    mixes = any(getattr(config, name, None) is not None for name in images)
    if module.main_input_name == "input_ids" and vocabulary is not None and not mixes:
        tokens = {
            "shape": ["batch", _length(module, config, request)],
            "dtype": "int64",
            "values": {"range": [0, vocabulary]},
        }
        kwargs: dict[str, Json] = {}
        if config.is_encoder_decoder and "decoder_input_ids" in takes:
            kwargs["decoder_input_ids"] = tokens
        vision = getattr(config, "vision_config", None)
        if vision is not None and "pixel_values" in takes:
            kwargs["pixel_values"] = _image(vision, None)
        return {"args": [tokens], "kwargs": kwargs}
    shown = ", ".join([*takes][:4])
    raise InputError(
        f"the inputs of {request.name!r} do not follow from its configuration; give inputs "
        f"(it takes {shown}{', …' if len(takes) > 4 else ''})"
    )


def _image(config: Any, size: tuple[int, ...] | None) -> dict[str, Json]:
    if size is None:
        side = getattr(config, "image_size", None) or IMAGE_SIDE
        height, width = side if isinstance(side, list | tuple) else (side, side)
        size = (getattr(config, "num_channels", 3), height, width)
    if len(size) != 3:
        raise InputError(f"input size {list(size)}; an image has channels, height and width")
    return {"shape": ["batch", *size]}


def _length(module: nn.Module, config: Any, request: ModelSpec) -> int:
    """Return the number of tokens."""
    size = request.input_size or (min(TOKENS, _positions(module, config) or TOKENS),)
    if len(size) != 1:
        raise InputError(f"input size {list(size)} of {request.name!r}; it takes one number")
    most = _positions(module, config)
    if most is not None and size[0] > most:
        raise InputError(f"input size {list(size)} of {request.name!r}; it takes at most {most}")
    return size[0]


def _positions(module: nn.Module, config: Any) -> int | None:
    """Return how many tokens a model has learned positions for; None where it is not limited.

    Where positions are padded, as RoBERTa's are, they begin after the padding's own; where their
    table has an offset, as OPT's and BART's have, it has that many rows more.
    """
    rows: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    for inner in module.modules():
        if not isinstance(inner, nn.Embedding):
            continue
        if rows is not None and inner.num_embeddings - getattr(inner, "offset", 0) == rows:
            return rows if inner.padding_idx is None else rows - inner.padding_idx - 1
    return None


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


class GenerationPass(nn.Module):
    """One prefill, or one decoding step, of a causal decoder; returns the last token's logits.

    `generation` is the request's (see `ModelSpec.generation`).
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
        if self._cache is None:
            self._cache = self._made(tokens)
        if self._static:
            self._counters.copy_(self._start)
        for layer, state in self._layers:
            vars(layer).update(state)
        logits: Tensor = self._run(tokens, self._cache).logits
        return logits

    def _run(self, tokens: Tensor, cache: Any) -> Any:
        given = {self._argument: cache, **self._options}
        return self.decoder(input_ids=tokens, use_cache=True, **given)

    def _made(self, tokens: Tensor) -> Any:
        """Make the cache and fill it with random values."""
        cache = _new_cache(self.decoder, self._length)
        _check_known(self._name, cache.layers)
        output = self._run(tokens[:, :1], cache)  # the library knows the shapes of keys and values
        layers, scores = list(cache.layers), isinstance(getattr(output, "logits", None), Tensor)
        if not scores or not layers or not all(each.is_initialized for each in layers):
            raise InputError(
                f"{self._name!r} returns no logits, or fills no cache of keys and values: it is no "
                "causal decoder"
            )
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


class WholeGeneration(nn.Module):
    """A whole generation by transformers' `generate`; returns all tokens, the prompt's included.

    The likeliest token is taken each time, no token ends a sequence, and nothing is compiled, so
    that each generation makes the same calls. `generation` is as in `GenerationPass`.
    """

    def __init__(self, name: str, decoder: nn.Module, generation: Json) -> None:
        super().__init__()
        _check_known(name, _new_cache(decoder, None).layers)
        config: Any = getattr(decoder, "generation_config", None)
        if config is None or not callable(getattr(decoder, "generate", None)):
            raise InputError(f"{name!r} has no generate of transformers")
        self.decoder: Any = decoder
        for each in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(config, each, None)
        self._tokens: int = generation["max_new_tokens"]
        self._options: dict[str, Any] = {"do_sample": False, "disable_compile": True}
        if generation["cache"] == "static":
            self._options["cache_implementation"] = "static"

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.decoder.generate(
            tokens, use_cache=True, max_new_tokens=self._tokens, **self._options
        )
        return found


def _new_cache(decoder: Any, length: int | None) -> Any:
    """Return an empty cache of the library: static of so many positions, or dynamic (None)."""
    from transformers import DynamicCache, StaticCache

    if length is not None:
        return StaticCache(config=decoder.config, max_cache_len=length)
    return DynamicCache(config=decoder.config)


def _check_known(name: str, layers: list[Any]) -> None:
    others = {type(each).__name__ for each in layers} - _KNOWN_LAYERS
    if others:
        raise InputError(
            f"{name!r} keeps a cache of a family that opdb does not know "
            f"({', '.join(sorted(others))}); known: {', '.join(sorted(_KNOWN_LAYERS))}"
        )


def as_generation(blueprint: Blueprint, request: ModelSpec) -> Blueprint:
    """Return a decoder's blueprint made one prefill or one decoding step, as the request says."""
    module, generation = blueprint.module, request.generation
    assert generation is not None
    config: Any = getattr(module, "config", None)
    takes = inspect.signature(module.forward).parameters
    cached = any(name in takes for name in _CACHE_ARGUMENTS)
    if not (cached and hasattr(config, "get_text_config")) or config.is_encoder_decoder:
        raise InputError(
            f"{request.name!r} is no causal decoder of transformers that takes past_key_values"
        )
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
        made: nn.Module = WholeGeneration(request.name, module, generation)
    else:
        made = GenerationPass(request.name, module, generation, filled=filled)
    return replace(blueprint, module=made, inputs=inputs, example=None)


def _set_experts(request: ModelSpec, decoder: Any) -> None:
    """Choose how a mixture's experts are multiplied: as asked, else as `generate` does on a GPU."""
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


FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
MULTIPLE = 16
"""What the sizes of a scaled product's factors are multiples of."""


def _in_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows in float8, and the scale of each, of shape [rows, 1]."""
    scale = rows.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (rows / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


class Float8Linear(nn.Module):
    """A linear layer whose weight is float8, and whose input is brought to it in each call."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        rows, scale = _in_float8(linear.weight.detach())
        self.weight = nn.Buffer(rows.t())  # a scaled product takes columns
        self.scale = nn.Buffer(scale.t().contiguous())
        self.bias = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        rows, scale = _in_float8(input.reshape(-1, input.shape[-1]))
        output = torch._scaled_mm(
            rows,
            self.weight,
            scale_a=scale,
            scale_b=self.scale,
            bias=self.bias,
            out_dtype=input.dtype,
        )
        return output.reshape(*input.shape[:-1], output.shape[-1])


def quantize(name: str, decoder: nn.Module) -> None:
    """Put a decoder's linear layers into float8, all but its head."""
    head = getattr(decoder, "get_output_embeddings", lambda: None)()
    found = [
        (parent, child, f"{path}.{child}".lstrip("."), layer)
        for path, parent in decoder.named_modules()
        for child, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and layer is not head
    ]
    if not found:
        raise InputError(f"{name!r} has no linear layers besides its head: nothing for fp8")
    for _, _, path, layer in found:
        if layer.in_features % MULTIPLE or layer.out_features % MULTIPLE:
            raise InputError(
                f"{name!r}: fp8 takes sizes that are multiples of {MULTIPLE}, and {path!r} has "
                f"{layer.in_features} and {layer.out_features} features"
            )
    with torch.no_grad():
        for parent, child, _, layer in found:
            setattr(parent, child, Float8Linear(layer))
