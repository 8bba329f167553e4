"""transformers as a source of models: real ones, of random weights, without a network."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from opdb.errors import InputError, UnknownNameError
from opdb.models import catalogue, load, names
from opdb.models import transformers as source
from opdb.packaging import install
from opdb.spec import ModelSpec


def test_a_checkpoints_name_gives_its_model_without_its_weights() -> None:
    loaded = load(ModelSpec("bert-base-uncased", batch_size=3, dtype="bfloat16"), device="meta")
    assert type(loaded.module).__name__ == "BertModel" and loaded.source == "transformers"
    assert loaded.source_version.partition(".")[0].isdigit()
    assert sum(parameter.numel() for parameter in loaded.module.parameters()) == 109_482_240
    held = [*loaded.module.parameters(), *loaded.module.buffers()]
    assert all(tensor.is_meta for tensor in held)
    assert {p.dtype for p in loaded.module.parameters()} == {torch.bfloat16}
    assert not any(module.training for module in loaded.module.modules())
    tokens = {"shape": [3, 128], "dtype": "int64", "values": {"range": [0, 30522]}}
    assert loaded.inputs == {"args": [tokens], "kwargs": {}}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-large-uncased", 335_141_888),
        ("distilbert-base-uncased", 66_362_880),
        ("roberta-base", 124_645_632),
        ("roberta-large", 355_359_744),
        ("albert-base-v2", 11_683_584),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("opt-125m", 125_239_296),
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
        ("tinyllama-1.1b", 1_100_048_384),
        ("vit-base-patch16-224", 86_389_248),
    ],
)
def test_listed_checkpoints_have_the_published_sizes(name: str, parameters: int) -> None:
    module = load(ModelSpec(name), device="meta").module
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "parameters", "bare"),
    [
        ("llama-3.1-8b", 8_030_261_248, 7_504_924_672),
        ("llama-3.2-1b", 1_235_814_400, 1_235_814_400),  # the head is the embedding
        ("gpt2", 124_439_808, 124_439_808),
        ("gpt_neox", 20_554_567_680, 20_244_713_472),
        ("mamba2", 7_285_403_648, 7_151_185_920),
    ],
)
def test_a_causal_decoder_has_its_head_in_every_phase(
    name: str, parameters: int, bare: int
) -> None:
    def built(name: str, **said: Any) -> Any:
        return load(ModelSpec(name, **said), device="meta").module

    def count(module: Any) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    whole, body = built(name, input_size=(8,)), built(f"{name}-bare", input_size=(8,))
    assert type(whole).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    assert type(body).__name__.endswith("Model")
    assert (count(whole), count(body)) == (parameters, bare)
    assert count(built(name, phase="training", input_size=(8,))) == parameters
    if name != "mamba2":  # it keeps no cache of keys and values
        assert count(built(name, phase="prefill", input_size=(8,))) == parameters


def test_images_have_the_size_of_the_configuration_or_the_one_asked_for() -> None:
    assert load(ModelSpec("vit", batch_size=2), device="meta").args[0].shape == (2, 3, 224, 224)
    small = load(ModelSpec("vit", input_size=(3, 96, 96)), device="meta")
    assert small.module(*small.args).last_hidden_state.shape == (1, 37, 768)
    wide = load(ModelSpec("vit", input_size=(3, 96, 192)), device="meta")
    assert wide.module(*wide.args).last_hidden_state.shape == (1, 73, 768)
    clip = load(ModelSpec("clip", batch_size=2), device="meta")
    assert clip.args[0].shape == (2, 77)
    assert clip.kwargs["pixel_values"].shape == (2, 3, 224, 224)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ModelSpec("bert-base-uncase"), "did you mean 'bert-base-uncased'"),
        (ModelSpec("gtp2", source="transformers"), "unknown transformers model 'gtp2'; did"),
        (ModelSpec("bert", weights="published"), "weights 'published': only models of torchvision"),
        (ModelSpec("bert", input_size=(3, 224, 224)), "it takes one number"),
        (ModelSpec("bert", input_size=(513,)), "it takes at most 512"),
        (ModelSpec("roberta-base", input_size=(513,)), "it takes at most 512"),
        (ModelSpec("gpt2", input_size=(1025,)), "it takes at most 1024"),
        (ModelSpec("opt-125m", input_size=(2049,)), "it takes at most 2048"),
        (ModelSpec("bart", input_size=(1025,)), "it takes at most 1024"),
        (ModelSpec("vit", input_size=(224,)), "an image has channels, height and width"),
        (ModelSpec("whisper"), "give inputs .it takes input_features, "),
        (ModelSpec("llava"), "give inputs .it takes input_ids, "),
    ],
)
def test_bad_requests_are_explained(request_: ModelSpec, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(request_, device="meta")
    assert len(str(caught.value).splitlines()) == 1


def test_without_transformers_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (source, catalogue):
        monkeypatch.setattr(module, "version_of", lambda package: None)
    catalogue.catalogue.cache_clear()
    try:
        with pytest.raises(InputError, match=re.escape(install("transformers"))):
            load(ModelSpec("bert-base-uncased"), device="meta")
        with pytest.raises(UnknownNameError, match=re.escape(install("transformers"))):
            load(ModelSpec("distilbert"), device="meta")
        with pytest.raises(UnknownNameError, match=re.escape(install("transformers"))):
            load(ModelSpec("mistral", source="transformers"), device="meta")
        assert "gpt2" in names("transformers")
    finally:
        catalogue.catalogue.cache_clear()
