"""What the meta device shows of a model is what the GPU shows of it, layouts included."""

from __future__ import annotations

import pytest

from opdb.harvest.passes import record
from opdb.models import load
from opdb.spec import ModelSpec

NAMES = (
    *("resnet50", "densenet121", "googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_5"),
    *("efficientnet_b0", "efficientnet_v2_s", "swin_t", "swin_v2_t", "convnext_tiny", "vit_b_32"),
    *("maxvit_t", "mnasnet0_5", "regnet_y_400mf", "inception_v3", "vgg11_bn", "squeezenet1_1"),
    *("lraspp_mobilenet_v3_large", "fcn_resnet50", "deeplabv3_resnet50", "raft_small"),
    *("r3d_18", "mvit_v2_s", "s3d", "swin3d_t", "lstm", "transformer", "mlp"),
)
FORMATS = (("float32", "contiguous"), ("bfloat16", "channels_last"))


@pytest.mark.parametrize(("dtype", "memory_format"), FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_meta_shows_what_the_gpu_shows(name: str, dtype: str, memory_format: str) -> None:
    if name == "raft_small" and dtype != "float32":
        pytest.skip("RAFT mixes its own float32 grids with its input")
    request = ModelSpec(name, batch_size=2, dtype=dtype, memory_format=memory_format)
    on_meta, on_gpu = (record(load(request, device=device)) for device in ("meta", "cuda"))
    pairs = zip(on_meta.calls, on_gpu.calls, strict=True)
    differing = [(m.configuration.json, g.configuration.json) for m, g in pairs if m != g]
    assert differing == []
    assert on_meta.unsupported == on_gpu.unsupported
