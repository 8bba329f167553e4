"""Prefill and decoding steps: what a pass calls, that it repeats, and what is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from opdb.errors import InputError
from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.records import Workload
from opdb.spec import ModelSpec

transformers = pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"
EXPERTS = "tests.models.decoders:experts"
ODD = "tests.models.decoders:odd"
BF16: dict[str, Any] = {"context": 4, "dtype": "bfloat16"}


def step(name: str = TINY, **said: Any) -> ModelSpec:
    return ModelSpec(name, **{"phase": "decode", "batch_size": 2, **said})


def kinds(workload: Workload) -> list[str]:
    return [call.configuration.kind for call in workload.calls]


def cache_shapes(workload: Workload, kind: str) -> set[tuple[int, ...]]:
    return {
        tuple(call.configuration.inputs["input"]["shape"])
        for call in workload.calls
        if call.configuration.kind == kind
    }


def test_static_step_writes_in_place_at_the_allocated_length() -> None:
    found = harvest(step(context=20, cache_length=32))
    assert cache_shapes(found, "index_copy") == {(2, 2, 32, 16)}
    assert kinds(found).count("scaled_dot_product_attention") == 2
    assert "zeros" not in kinds(found)  # making the cache is no part of a step
    assert not found.unsupported
    assert found.inputs["generation"] == {"cache": "static", "context": 20, "cache_length": 32}


def test_dynamic_step_grows_the_filled_length() -> None:
    found = harvest(step(context=20, cache="dynamic"))
    grown = [
        call.configuration.inputs["tensors"][0]["shape"]
        for call in found.calls
        if call.configuration.kind == "cat"
    ]
    assert grown.count([2, 2, 20, 16]) == 4
    assert found.inputs["generation"] == {"cache": "dynamic", "context": 20}


def test_a_prefill_and_steps_are_the_models_own() -> None:
    """A step after a real prefill gives the logits of a pass over all tokens."""
    loaded = load(step(context=9, cache_length=12), device="cpu")
    module: Any = loaded.module
    torch.manual_seed(3)
    tokens = torch.randint(0, 512, (2, 10))
    with torch.no_grad():
        module(tokens[:, 9:])
        prefill = module.decoder(tokens[:, :9], use_cache=True).past_key_values
        for number, layer in enumerate(prefill.layers):
            for name in ("keys", "values"):
                getattr(module, f"{name}_{number}")[:, :, :9] = getattr(layer, name)
        found = module(tokens[:, 9:])
        whole = module.decoder(tokens).logits[:, -1:]
    assert torch.allclose(found, whole, atol=1e-5)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_a_whole_generation_is_that_of_the_library(cache: str) -> None:
    """Three tokens of each sequence: its calls are the model's and those between its passes."""
    asked: dict[str, Any] = {
        "phase": "generate",
        "input_size": (9,),
        "max_new_tokens": 3,
        "cache": cache,
    }
    found = harvest(step(**asked))
    assert kinds(found).count("scaled_dot_product_attention") == 3 * 2
    assert kinds(found).count("argmax") == 3
    assert kinds(found).count("item") >= 2  # the host looks at each token whether to stop
    assert not found.unsupported
    assert found.inputs["generation"] == {"cache": cache, "max_new_tokens": 3}
    loaded = load(step(**asked), device="cpu")
    decoder: Any = loaded.module.get_submodule("decoder")
    with torch.no_grad():
        made = loaded.module(*loaded.args)
        again = loaded.module(*loaded.args)
        expected = decoder(made[:, :-1]).logits[:, 8:].argmax(-1)
    assert made.shape == (2, 12)
    assert torch.equal(made, again)
    assert torch.equal(made[:, 9:], expected)


def test_experts_are_multiplied_as_generate_does_or_as_asked() -> None:
    """`generate` gathers the weights of a step's experts on a GPU, and groups those of a prompt."""
    usual = harvest(step(EXPERTS, context=9, dtype="bfloat16"))
    assert kinds(usual).count("bmm") == 4
    prefill = harvest(step(EXPERTS, phase="prefill", input_size=(24,), dtype="bfloat16"))
    assert kinds(prefill).count("grouped_mm") == 4
    asked: dict[str, Any] = {"context": 9, "dtype": "bfloat16", "experts": "grouped_mm"}
    uneven = harvest(step(EXPERTS, **asked, imbalance=1.5))
    grouped = [c.configuration for c in uneven.calls if c.configuration.kind == "grouped_mm"]
    assert {str(each.inputs["offs"]["values"]) for each in grouped} == {"{'imbalance': 1.5}"}
    assert "values" not in next(
        c.configuration.inputs["offs"]
        for c in harvest(step(EXPERTS, **asked)).calls
        if c.configuration.kind == "grouped_mm"
    )
    assert not (usual.unsupported or prefill.unsupported or uneven.unsupported)


@pytest.mark.parametrize("name", [TINY, EXPERTS])
def test_linear_layers_in_float8_call_one_scaled_product_each(name: str) -> None:
    plain, scaled = (
        harvest(step(name, context=9, dtype="bfloat16", quantize=q)) for q in (None, "fp8")
    )
    layers = sum(
        c.configuration.kind == "linear" and c.form == "module" for c in plain.calls
    )  # a router multiplies by a parameter, in a function
    assert kinds(scaled).count("scaled_mm") == layers - 1  # the head is left
    assert kinds(scaled).count("linear") == kinds(plain).count("linear") - (layers - 1)
    assert kinds(scaled).count("amax") == layers - 1
    assert not scaled.unsupported
    asked: dict[str, Any] = {"phase": "prefill", "input_size": (24,), "dtype": "bfloat16"}
    logits = []
    for quantized in (None, "fp8"):
        loaded = load(step(name, **asked, quantize=quantized), device="cpu")
        with torch.no_grad():
            logits.append(loaded.module(*loaded.args).float())
    assert 0 < (logits[0] - logits[1]).norm() / logits[0].norm() < 0.1


MAMBA_LACKS = (  # transformers 5.24 and later give it their cache, which holds no keys and values
    "family that opdb does not know"
    if "cache" in inspect.signature(transformers.MambaForCausalLM.forward).parameters
    else "takes no past_key_values"
)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ModelSpec("resnet18", phase="decode", context=4), "no causal decoder"),
        (step("tests.models.decoders:encoder", context=4), "no causal decoder"),
        (ModelSpec("t5-small", phase="decode", context=4), "no causal decoder"),
        (step(context=256), "has 256 positions, not 257"),
        (step(context=16, cache_length=512), "has 256 positions, not 512"),
        (step(context=16, cache_length=16), "the pass needs 17"),
        (step(), "phase decode needs a context"),
        (step(context=16, cache="paged"), "paged"),
        (step(context=16, cache="dynamic", cache_length=32), "it has no cache length"),
        (step(phase="prefill", context=16), "phase prefill takes no context: only decode"),
        (ModelSpec(TINY, context=16), "phase inference takes no context"),
        (step(phase="prefill", input_size=(3, 4)), "a prompt is one number"),
        (
            step(context=4, input_size=(3,)),
            "decode takes no input size: only inference, training, prefill, generate",
        ),
        (step("mamba", context=4), MAMBA_LACKS),
        (step(context=4, quantize="fp8"), "scaled products of fp8 give bfloat16"),
        (step(**BF16, quantize="int3"), "int3"),
        (step(ODD, **BF16, quantize="fp8"), "'model.layers.0.mlp.gate_proj' has 64 and 100"),
        (step(**BF16, experts="grouped_mm"), "no mixture of experts"),
        (step(EXPERTS, **BF16, imbalance=-1.0), "imbalance -1.0"),
        (ModelSpec(TINY, quantize="fp8"), "inference takes no quantize: only prefill, decode"),
        (step(context=4, max_new_tokens=3), "phase decode takes no max new tokens: only generate"),
        (
            step(phase="generate", input_size=(250,), max_new_tokens=10),
            "has 256 positions, not 260",
        ),
        (step(phase="generate", cache_length=300), "takes no cache length: only prefill, decode"),
        (ModelSpec("mamba", phase="generate"), "no causal decoder|does not know"),
        (step("tests.models.decoders:linear", context=4), "family that opdb does not know"),
    ],
)
def test_what_is_refused_has_one_message(request_: ModelSpec, message: str) -> None:
    with pytest.raises(InputError, match=message):
        harvest(request_)
