from __future__ import annotations

import pytest
import torch

from opdb.errors import UnsupportedError
from opdb.kinds import get_kind
from opdb.operators import build, materialize
from opdb.records import Configuration, Json


def made(values: Json, **more: Json) -> torch.Tensor:
    spec = {"shape": [64, 1024], "dtype": "float32", "values": values, **more}
    return materialize(spec, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_share_of_the_values_is_zero_and_the_others_stay_normal(dtype: str, share: float) -> None:
    tensor = made({"zeros": share}, dtype=dtype)
    assert str(tensor.dtype) == f"torch.{dtype}"
    values = tensor.to(torch.complex64) if tensor.is_complex() else tensor.float()
    assert (values == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    others = values[values != 0]
    assert others.mean().abs().item() == pytest.approx(0, abs=0.05)
    assert others.std().item() == pytest.approx(1, abs=0.05)


def test_the_ends_of_the_share() -> None:
    assert not made({"zeros": 1.0}).any()
    assert made({"zeros": 0.0}).all()


def test_zeros_lie_where_a_layout_says() -> None:
    tensor = made({"zeros": 0.5}, shape=[2, 8, 16, 16], layout="channels_last")
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert 0.4 < (tensor == 0).float().mean() < 0.6


def test_a_seed_gives_the_same_zeros() -> None:
    assert torch.equal(made({"zeros": 0.5}), made({"zeros": 0.5}))


@pytest.mark.parametrize("share", [-0.1, 1.5, "half", None, True, [0.5]])
def test_what_is_no_share_is_refused(share: Json) -> None:
    with pytest.raises(UnsupportedError, match="a share of zeros is from 0 to 1, not"):
        made({"zeros": share})


def convolution(values: Json) -> Configuration:
    image: dict[str, Json] = {"shape": [1, 4, 8, 8], "dtype": "float32"}
    if values is not None:
        image["values"] = values
    weight = {"shape": [8, 4, 3, 3], "dtype": "float32", "role": "weight"}
    return Configuration("conv2d", {}, {"input": image, "weight": weight})


def test_a_share_of_zeros_is_another_configuration_that_comes_back() -> None:
    zeros = convolution({"zeros": 0.9})
    assert zeros.json == (
        '{"format":1,"inputs":{"input":{"dtype":"float32","shape":[1,4,8,8],'
        '"values":{"zeros":0.9}},"weight":{"dtype":"float32","role":"weight",'
        '"shape":[8,4,3,3]}},"kind":"conv2d"}'
    )
    assert Configuration.from_json(zeros.json) == zeros
    assert len({zeros.key, convolution(None).key, convolution("rectified").key}) == 3
    for device in ("cpu", "meta"):
        assert build(zeros, device=device)().shape == (1, 8, 6, 6)
    assert get_kind("conv2d").flops(zeros) == get_kind("conv2d").flops(convolution(None))


def test_views_keep_the_share_and_sums_do_not() -> None:
    image = convolution({"zeros": 0.9}).inputs["input"]
    flat = Configuration("flatten", {"start_dim": 1}, {"input": image})
    assert get_kind("flatten").output_values(flat) == {"zeros": 0.9}
    pooled = Configuration("max_pool2d", {"kernel_size": [2, 2]}, {"input": image})
    assert get_kind("max_pool2d").output_values(pooled) is None


def test_groups_are_filled_as_by_a_router() -> None:
    """Of 800 rows over 64 groups, the busiest groups get more where the imbalance is larger."""
    used, busiest = {}, {}
    for imbalance in (None, 2.0):
        offs: dict[str, Json] = {"dtype": "int32", "shape": [64]}
        if imbalance is not None:
            offs["values"] = {"imbalance": imbalance}
        inputs = {
            "input": {"dtype": "bfloat16", "shape": [800, 16]},
            "mat2": {"dtype": "bfloat16", "shape": [64, 16, 16], "role": "weight"},
            "offs": offs,
        }
        call = Configuration("grouped_mm", {}, inputs)
        ends = build(call).inputs[1]
        counts = ends.diff(prepend=ends.new_zeros(1))
        assert ends[-1] == 800
        assert counts.min() >= 0
        used[imbalance], busiest[imbalance] = int((counts > 0).sum()), int(counts.max())
    assert used[None] == 64  # 12.5 rows a group: none empty but in 1 of 4,000 draws
    assert busiest[2.0] > 3 * busiest[None]
    assert used[2.0] < used[None]


def test_scaled_numbers_fill_the_range_of_float8() -> None:
    spec = {"dtype": "float8_e4m3fn", "shape": [64, 64], "role": "weight"}
    found = materialize(spec).float()
    assert 60 < found.std() < 160
    assert found.abs().max() <= 448
