"""Small models of transformers that ask for values are harvested on meta, as on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from opdb.models import load
from opdb.records import Json
from opdb.spec import ModelSpec

harvesting = import_module("opdb.harvest.passes")  # `opdb.harvest` is the verb


transformers = pytest.importorskip("transformers")

HERE = "tests.models.test_known_transformers"
SIZES: dict[str, Any] = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 2,
    "patch_size": 4,
}
GRID = {"grid_thw": torch.tensor([[1, 8, 8], [1, 4, 8]])}
"""Two images of other sizes, for which lists are made of a tensor."""

MASK = torch.tensor([[1] * 16, [1] * 9 + [0] * 7])


def ids() -> torch.Tensor:
    """Return tokens that do not hang on what was drawn for weights before."""
    return torch.arange(32).view(2, 16) + 5


def qwen2_vl() -> Any:
    from transformers.models.qwen2_vl import configuration_qwen2_vl as of_config
    from transformers.models.qwen2_vl import modeling_qwen2_vl as of

    config = of_config.Qwen2VLVisionConfig(**SIZES)
    return of.Qwen2VisionTransformerPretrainedModel(config), (torch.ones(96, 96),), GRID


def qwen2_5_vl() -> Any:
    from transformers.models.qwen2_5_vl import configuration_qwen2_5_vl as of_config
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as of

    more: dict[str, Any] = {
        "intermediate_size": 32,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
    }
    config = of_config.Qwen2_5_VLVisionConfig(**SIZES, **more, window_size=16)
    return of.Qwen2_5_VisionTransformerPretrainedModel(config), (torch.ones(96, 96),), GRID


def longformer() -> Any:
    config = transformers.LongformerConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=64,
        attention_window=8,
        max_position_embeddings=40,
    )
    wide = torch.tensor([[1, 1] + [0] * 14, [1] + [0] * 15])
    masks = {"attention_mask": MASK, "global_attention_mask": wide}
    return transformers.LongformerModel(config), (ids(),), masks


def bert() -> Any:
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=64,
    )
    return transformers.BertModel(config), (ids(),), {"attention_mask": MASK}


def rt_detr_v2() -> Any:
    """It writes the sizes of its levels into empty memory, and checks them."""
    config = transformers.RTDetrV2Config(
        d_model=32,
        encoder_hidden_dim=32,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        decoder_in_channels=[32] * 3,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        decoder_layers=1,
        num_queries=20,
        num_denoising=0,
    )
    return transformers.RTDetrV2Model(config), (torch.ones(1, 3, 64, 64),)


def without_layouts(value: Json) -> Json:
    """Return a description without layouts: those of attention on meta are a GPU's."""
    if isinstance(value, dict):
        return {name: without_layouts(v) for name, v in value.items() if name != "layout"}
    return [without_layouts(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "longformer", "bert", "rt_detr_v2"])
def test_they_call_on_meta_what_they_call_on_the_cpu(name: str) -> None:
    request = ModelSpec(f"{HERE}:{name}")
    on_meta, on_cpu = (
        harvesting._recorded(request, load(request, device=device), device).workload
        for device in ("meta", "cpu")
    )
    assert on_meta.key == on_cpu.key and on_meta.unsupported == on_cpu.unsupported
    found, wanted = (
        [(c.configuration.kind, c.form, without_layouts(c.configuration.inputs)) for c in of.calls]
        for of in (on_meta, on_cpu)
    )
    assert found == wanted
    assert {"tolist", "item"} & {kind for kind, *_ in wanted}
