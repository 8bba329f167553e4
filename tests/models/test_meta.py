from __future__ import annotations

import torch
from torch import nn
from torch.utils import backend_registration

from opdb.models.meta import MetaKernels, fused_attention_on_meta

aten = torch.ops.aten


def on_meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def test_a_remembered_call_gives_a_new_tensor_of_the_same_kind() -> None:
    kernels = MetaKernels()
    x = on_meta(2, 6, 4, 4)
    made = [kernels(aten.relu.default, (x,), {}) for _ in range(3)]
    assert len({tensor.untyped_storage()._cdata for tensor in made}) == 3
    assert {(tensor.shape, tensor.stride(), tensor.dtype) for tensor in made} == {
        (x.shape, x.stride(), x.dtype)
    }


def test_numbers_of_other_types_are_other_calls() -> None:
    kernels = MetaKernels()
    x = torch.empty(3, dtype=torch.int64, device="meta")
    dtypes = [kernels(aten.add.Tensor, (x, number), {}).dtype for number in (1, 1.0, 1)]
    assert dtypes == [torch.int64, torch.float32, torch.int64]


def test_in_place_calls_and_views_keep_their_tensor() -> None:
    kernels = MetaKernels()
    x, y = on_meta(2, 3), on_meta(2, 3)
    for tensor in (x, y):
        assert kernels(aten.relu_.default, (tensor,), {}) is tensor
        view = kernels(aten.t.default, (tensor,), {})
        assert view.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        same = kernels(aten._unsafe_view.default, (tensor, [6]), {})
        assert same.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_real_tensors_are_computed_every_time() -> None:
    kernels = MetaKernels()
    one, two = torch.ones(2), torch.full((2,), -1.0)
    assert kernels(aten.relu.default, (one,), {}).tolist() == [1, 1]
    assert kernels(aten.relu.default, (two,), {}).tolist() == [0, 0]


def test_the_backend_name_is_restored() -> None:
    before = backend_registration._privateuse1_backend_name
    with fused_attention_on_meta():
        nn.Linear(2, 2, device="meta")(on_meta(1, 2))
    assert backend_registration._privateuse1_backend_name == before
