"""The models of transformers, built from their configuration with random weights.

A name is one of transformers' model types ("bert": its configuration as it is), or that of a
checkpoint whose sizes are listed here. Nothing is ever downloaded.

The pass is that of a batch without padding: text models are given input_ids alone. A mask of ones
would change no number and no attention kernel, since transformers looks whether anything is masked
and drops it; but that look makes the host wait for the device in every pass, and inside a CUDA
graph the mask is kept. Causal models fill their cache of keys and values, as is their default:
without one they look for packed sequences, with the same two consequences.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from typing import Any

import torch
from torch import nn

from opdb.distribution import install
from opdb.errors import InputError
from opdb.models import TOKENS, ModelRequest
from opdb.models.checkpoints import CHECKPOINTS
from opdb.models.source import Blueprint
from opdb.models.usual import IMAGE_SIDE
from opdb.records import Json


def _checkpoint(name: str) -> tuple[str, Mapping[str, Json]] | None:
    return CHECKPOINTS.get(name.replace("_", "-"))


def installed() -> bool:
    """Return whether transformers can be imported."""
    return util.find_spec("transformers") is not None


@cache
def model_types() -> tuple[str, ...]:
    """Return transformers' model types that have a base model; none where it is not installed."""
    if not installed():
        return ()
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return tuple(name for name in CONFIG_MAPPING if name in MODEL_MAPPING_NAMES)


class TransformersSource:
    """The models that `transformers.AutoModel.from_config` builds."""

    name = "transformers"
    fixed = True
    runs_code = False

    def names(self) -> Sequence[str]:
        """Return the checkpoints' names and the model types."""
        return [*CHECKPOINTS, *(name for name in model_types() if name not in CHECKPOINTS)]

    def has(self, name: str) -> bool:
        """Return whether the name is one of them; a checkpoint's, also without transformers.

        A checkpoint's may be spelled with underscores, as files are: "bert_base".
        """
        return _checkpoint(name) is not None or name in model_types()

    def hint(self) -> str:
        """Say what to install for more names."""
        return (
            "" if installed() else f"(more names come with transformers: {install('transformers')})"
        )

    def version(self, name: str) -> str:
        """Return transformers' version."""
        return metadata.version("transformers").partition("+")[0]

    def build(self, request: ModelRequest) -> Blueprint:
        """Build the base model; an input size is the number of tokens, or an image's shape.

        Raises:
            InputError: transformers is not installed, weights or classes are asked for, the input
                size does not fit, or the model's inputs do not follow from its configuration.
        """
        if not installed():
            raise InputError(
                f"{request.name!r} is built by transformers; {install('transformers')}"
            )
        if request.weights is not None:
            raise InputError(
                f"{request.name!r} has random weights, not {request.weights!r}; leave them out"
            )
        if request.num_classes is not None:
            raise InputError(f"{request.name!r} is a base model without classes; leave them out")
        with _offline():
            import transformers

            config = _configuration(request)
            auto: Any = transformers.AutoModel  # its methods have no types
            if request.generation is not None:
                auto = transformers.AutoModelForCausalLM
                _check_decoder(request, config)
            module: nn.Module = auto.from_config(config, dtype=getattr(torch, request.dtype))
        generates = request.generation is not None
        given = generates or request.inputs is not None
        inputs = None if given else _inputs(module, config, request)
        return Blueprint(module, inputs=inputs, in_dtype=True)


SOURCE = TransformersSource()


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


def _check_decoder(request: ModelRequest, config: Any) -> None:
    """Check that transformers has a causal decoder of a configuration.

    Raises:
        InputError: it has none.
    """
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    causal: Any = AutoModelForCausalLM
    masked: Any = AutoModelForMaskedLM  # such a model decodes where its configuration says so
    encodes = type(config) in masked._model_mapping and not getattr(config, "is_decoder", False)
    if type(config) not in causal._model_mapping or config.is_encoder_decoder or encodes:
        raise InputError(f"{request.name!r} is no causal decoder: it has no phase {request.phase}")


def _configuration(request: ModelRequest) -> Any:
    """Return the model's configuration, with the image size that is asked for."""
    from transformers import AutoConfig

    kind, overrides = _checkpoint(request.name) or (request.name, {})
    config = AutoConfig.for_model(kind, **overrides)
    size = request.input_size
    if size is not None and len(size) == 3 and hasattr(config, "image_size"):
        config.image_size = size[1] if size[1] == size[2] else tuple(size[1:])
    return config


def _inputs(module: Any, config: Any, request: ModelRequest) -> dict[str, Json]:
    """Return the inputs of one pass, by what the model says its main input is."""
    takes = inspect.signature(module.forward).parameters
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if module.main_input_name == "pixel_values":
        return {"args": [_image(config, request.input_size)]}
    if module.main_input_name == "input_ids" and vocabulary is not None and not _mixes(config):
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


def _mixes(config: Any) -> bool:
    """Return whether some tokens stand for images: their number depends on the images."""
    return any(getattr(config, f"image_token_{name}", None) is not None for name in ("id", "index"))


def _image(config: Any, size: tuple[int, ...] | None) -> dict[str, Json]:
    """Return images of the size that is given, or of the one that a configuration says."""
    if size is None:
        side = getattr(config, "image_size", None) or IMAGE_SIDE
        height, width = side if isinstance(side, list | tuple) else (side, side)
        size = (getattr(config, "num_channels", 3), height, width)
    if len(size) != 3:
        raise InputError(f"input size {list(size)}; an image has channels, height and width")
    return {"shape": ["batch", *size]}


def _length(module: nn.Module, config: Any, request: ModelRequest) -> int:
    """Return the number of tokens.

    Raises:
        InputError: it is not one number, or more than the model has positions for, which the meta
            device would not notice.
    """
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
    text = config.get_text_config()
    rows: int | None = getattr(text, "max_position_embeddings", None)
    for inner in module.modules():
        if not isinstance(inner, nn.Embedding):
            continue
        offset = getattr(inner, "offset", 0)
        if offset and inner.num_embeddings - offset == rows:
            return rows
        if inner.num_embeddings == rows:
            padded = 0 if inner.padding_idx is None else inner.padding_idx + 1
            return inner.num_embeddings - padded
    return None
