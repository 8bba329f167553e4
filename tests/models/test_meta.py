from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.models.meta import (
    attended,
    attending,
    on_meta,
    recurrent_on_meta,
)
from tests.paths import python_path

aten = torch.ops.aten
F = nn.functional


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize(
    "product",
    [
        lambda x: F.linear(x, empty(4, 3), empty(4)),
        lambda x: F.linear(empty(2, 3), x),
        lambda x: x @ empty(3),
        lambda x: F.conv1d(x[:, None], empty(4, 1, 3)),
    ],
)
def test_a_product_refuses_dtypes_that_differ_as_on_a_device(
    product: Callable[[Tensor], Tensor],
) -> None:
    class Running(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            return on_meta(func, args, kwargs or {})

    with Running(), torch.no_grad():  # type: ignore[no-untyped-call]
        assert product(empty(2, 3)).dtype == torch.float32
        with pytest.raises(RuntimeError, match=r"dtypes differ: .*float64"):
            product(empty(2, 3).double())


@pytest.mark.parametrize(
    ("one", "other", "ends"),
    [
        ((12, 8), (3, 8, 16), 3),
        ((4, 16), (16, 8), 2),
        ((3, 4, 8), (8, 12), 3),
        ((3, 4, 8), (3, 8, 16), None),
    ],
)
def test_grouped_products_have_on_meta_the_shape_that_the_cpu_gives(
    one: tuple[int, ...], other: tuple[int, ...], ends: int | None
) -> None:
    """Up to torch 2.14 the meta kernel takes bfloat16 alone."""
    offsets = None
    if ends is not None:
        offsets = torch.full((ends,), 4, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    real = torch._grouped_mm(torch.ones(one), torch.ones(other), offs=offsets)
    on_meta_too = None if offsets is None else offsets.to("meta")
    for dtype in (torch.float32, torch.float16):
        a, b = (torch.empty(shape, dtype=dtype, device="meta") for shape in (one, other))
        found = on_meta(aten._grouped_mm.default, (a, b, on_meta_too), {})
        assert (found.shape, found.dtype, found.is_meta) == (real.shape, dtype, True)


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True),
    "projected": lambda: nn.LSTM(4, 6, 3, proj_size=5, bias=False),
    "gru": lambda: nn.GRU(4, 6, bidirectional=True),
    "relu": lambda: nn.RNN(4, 6, 2, nonlinearity="relu", batch_first=True),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recurrent_layers_give_on_meta_what_they_give(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    def facts(device: str) -> list[tuple[torch.Size, tuple[int, ...], torch.dtype]]:
        module = RECURRENT[name]().to(device, dtype)
        with torch.no_grad():
            output, states = module(torch.zeros(shape, dtype=dtype, device=device))
        made = [output, *(states if isinstance(states, tuple) else [states])]
        assert all(each.device.type == device for each in made)
        return [(each.shape, each.stride(), each.dtype) for each in made]

    with recurrent_on_meta():
        assert facts("meta") == facts("cpu")


@pytest.mark.parametrize(
    ("dtype", "by_heads", "masked", "strides"),
    [
        (torch.float32, False, False, (192, 16, 48, 1)),
        (torch.float32, True, False, (192, 16, 48, 1)),
        (torch.bfloat16, False, False, (192, 16, 48, 1)),
        (torch.bfloat16, True, False, (192, 64, 16, 1)),
        (torch.bfloat16, True, True, (192, 16, 48, 1)),
        (torch.float64, False, False, (192, 64, 16, 1)),
    ],
)
def test_attention_is_laid_out_as_its_kernels_do(
    dtype: torch.dtype, by_heads: bool, masked: bool, strides: tuple[int, ...]
) -> None:
    shape = (2, 3, 4, 16) if by_heads else (2, 4, 3, 16)
    query = torch.empty(shape, dtype=dtype, device="meta")
    query = query if by_heads else query.transpose(1, 2)
    mask = torch.empty(4, 4, dtype=torch.bool, device="meta") if masked else None
    function, args = F.scaled_dot_product_attention, (query, query, query)
    plain = function(*args, attn_mask=mask)
    attention = attending(function, args, {"attn_mask": mask})
    assert attention is not None
    output = attended(plain, attention)
    assert output.shape == (2, 3, 4, 16) and output.stride() == strides


def _attention(batch: int, length: int, width: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(batch, length, 3, width, device="meta", dtype=dtype).transpose(1, 2)


@pytest.mark.parametrize(
    ("dtype", "widths", "batches", "masked", "fused"),
    [
        (torch.float32, (16, 16), (2, 2), False, True),
        (torch.float32, (6, 6), (2, 2), False, False),  # rows of 24 bytes
        (torch.float32, (8, 6), (2, 2), False, False),
        (torch.float32, (8, 12), (2, 2), False, True),
        (torch.bfloat16, (12, 12), (2, 2), True, False),
        (torch.bfloat16, (16, 16), (2, 2), True, True),
        (torch.float32, (16, 16), (2, 1), False, False),  # the keys are broadcast
        (torch.float64, (16, 16), (2, 2), False, False),
    ],
)
def test_which_attention_has_a_fused_kernel(
    dtype: torch.dtype,
    widths: tuple[int, int],
    batches: tuple[int, int],
    masked: bool,
    fused: bool,
) -> None:
    query, key, value = (
        _attention(batch, 4, width, dtype)
        for batch, width in zip((batches[0], *batches[1:] * 2), (widths[0], *widths), strict=True)
    )
    mask = torch.empty(4, 4, dtype=dtype, device="meta") if masked else None
    function = F.scaled_dot_product_attention
    plain = function(query, key, value, attn_mask=mask)
    output = attended(plain, (query, key, value, mask))
    assert plain.is_contiguous() and output.is_contiguous() == (not fused)


GRADIENTS: dict[str, tuple[Any, ...]] = {
    "hardtanh_backward": (0.0, 6.0),
    "hardswish_backward": (),
    "mish_backward": (),
    "silu_backward": (),
    "gelu_backward": (),
    "threshold_backward": (0,),
    "leaky_relu_backward": (0.1, False),
    "hardsigmoid_backward": (),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("last", [0, 1])
def test_a_gradient_that_meets_another_layout_lies_as_on_a_device(name: str, last: int) -> None:
    operator = getattr(torch.ops.aten, name).default
    pair = [torch.randn(2, 8, 3, 3), torch.randn(2, 8, 3, 3)]
    pair[last] = pair[last].contiguous(memory_format=torch.channels_last)
    there = operator(*pair, *GRADIENTS[name])
    found = on_meta(operator, (*(t.to("meta") for t in pair), *GRADIENTS[name]), {})
    assert found.stride() == there.stride()


@pytest.mark.parametrize("last", [0, 1])
def test_the_gradient_of_a_norms_input_lies_as_on_a_device(last: int) -> None:
    pair = [torch.randn(2, 8, 3, 3), torch.randn(2, 8, 3, 3)]
    pair[last] = pair[last].contiguous(memory_format=torch.channels_last)
    ones = torch.ones(8)
    of_batch = (*pair, ones, ones, ones, ones, ones, True, 1e-5, [True, True, True])
    images = [t.permute(0, 2, 3, 1) for t in pair]
    of_layer = (*images, [8], *(torch.ones(2, 3, 3, 1),) * 2, ones, ones, [True, True, True])
    for name, args in (("batch", of_batch), ("layer", of_layer)):
        operator = getattr(torch.ops.aten, f"native_{name}_norm_backward").default
        given = tuple(t.to("meta") if isinstance(t, torch.Tensor) else t for t in args)
        found = on_meta(operator, given, {})
        assert found[0].stride() == operator(*args)[0].stride(), name


PROGRAM = """
import sys
import torch
from opdb.harvest.passes import harvest_in_both
from opdb.spec import ModelSpec
assert len(harvest_in_both(ModelSpec("resnet18")).workload.calls) == 69
assert not any(name.startswith("torch._dynamo") for name in sys.modules)
from torchvision.ops import roi_align
boxes = torch.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]])
assert roi_align(torch.ones(1, 1, 4, 4), boxes, 2).shape == (1, 1, 2, 2)
assert torch.compile(torch.neg, backend="eager")(torch.ones(2))[0] == -1
"""


def test_a_harvest_does_not_import_dynamo_and_what_follows_can() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={"PYTHONPATH": python_path()})
