"""Every model of every source is described whole, and comes back as it was written down."""

from __future__ import annotations

from collections import Counter

import pytest

from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.models.sources import family_of, torchvision_names
from opdb.spec import ModelSpec
from tests.harvest import sample_models
from tests.harvest.oracle import Opinion
from tests.paths import ROOT

SMALL = {
    # name: an input small enough for the CPU
    "resnet18": (3, 32, 32),
    "densenet121": (3, 32, 32),
    "googlenet": (3, 64, 64),
    "mobilenet_v3_small": (3, 32, 32),
    "shufflenet_v2_x0_5": (3, 32, 32),
    "squeezenet1_0": (3, 64, 64),
    "efficientnet_b0": (3, 32, 32),
    "swin_v2_t": (3, 64, 64),
    "convnext_tiny": (3, 64, 64),
    "lraspp_mobilenet_v3_large": (3, 64, 64),
    "r3d_18": (3, 4, 32, 32),
}
FAMILIES = ("classification", "segmentation", "video")
ZOO = [name for name in torchvision_names() if family_of(name) in FAMILIES]


def check(opinion: Opinion, *, rebuilt: bool = True) -> None:
    assert opinion.recorder.unsupported == {} and opinion.recorder.calls
    assert opinion.oracle.faults() == [] and opinion.oracle.inside
    assert not rebuilt or opinion.mismatches() == []


@pytest.mark.parametrize(
    "name",
    [
        *("lstm", "transformer", "mlp", *SMALL),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ZOO if each not in SMALL),
    ],
)
def test_models_are_described_whole_and_come_back_on_meta(name: str) -> None:
    check(Opinion(ModelSpec(name), "meta"))


@pytest.mark.parametrize(
    ("name", "memory_format"),
    [
        *((name, "contiguous") for name in SMALL),
        *((name, "channels_last") for name in ("resnet18", "googlenet", "mobilenet_v3_small")),
        *((name, "channels_last") for name in ("swin_v2_t", "convnext_tiny")),
    ],
)
def test_meta_shows_what_real_tensors_show(name: str, memory_format: str) -> None:
    size = SMALL[name] if memory_format == "contiguous" else (3, 64, 64)
    request = ModelSpec(name, batch_size=2, input_size=size, memory_format=memory_format)
    on_meta, on_cpu = (Opinion(request, device) for device in ("meta", "cpu"))
    check(on_cpu, rebuilt=False)
    assert on_meta.recorder.calls == on_cpu.recorder.calls


@pytest.mark.parametrize("name", sample_models.COMPLETE)
def test_own_models_are_described_whole_and_come_back(name: str) -> None:
    # the shape of what a boolean index picks hangs on the values, which are not kept
    request = ModelSpec(sample_models.path(name))
    check(Opinion(request, "cpu"), rebuilt=name != "asks_for_values")
    assert harvest(request).unsupported == {}


def test_the_oracle_sees_what_a_scripted_function_hides() -> None:
    opinion = Opinion(ModelSpec(sample_models.path("scripted")), "cpu")
    assert opinion.oracle.outside == {"mul": 1, "add": 1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "parameters", "blocks"),
    [("stable_diffusion_1_5", 859_520_964, 16), ("stable_diffusion_xl", 2_567_463_684, 70)],
)
def test_unets_of_diffusers_are_described_whole(
    name: str, parameters: int, blocks: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transformer block has two attentions, three layer norms and one gated GELU."""
    pytest.importorskip("diffusers")
    monkeypatch.chdir(ROOT)
    request = ModelSpec(f"measurements.diffusion.unets:{name}", batch_size=2, dtype=dtype)
    loaded = load(request, device="meta")
    assert sum(each.numel() for each in loaded.module.parameters()) == parameters
    opinion = Opinion(request, "meta")
    check(opinion)
    kinds = Counter(call.configuration.kind for call in opinion.recorder.calls)
    assert kinds["scaled_dot_product_attention"] == 2 * blocks
    assert (kinds["layer_norm"], kinds["gelu"]) == (3 * blocks, blocks)
