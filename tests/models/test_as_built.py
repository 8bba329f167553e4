"""Models of one's own count as they are built, unless an option says otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones

from opdb.errors import InputError
from opdb.models import LoadedModel, load
from opdb.spec import ModelSpec
from tests.own import Built, model


def full() -> Built:
    return nn.Linear(8, 4), (ones(2, 8),)


def half() -> Built:
    return nn.Linear(8, 4).half(), (ones(2, 8).half(),)


def last() -> Built:
    last = torch.channels_last
    return nn.Conv2d(3, 8, 3).to(memory_format=last), (ones(4, 3, 9, 9).to(memory_format=last),)


@model()
def _several(m: Any, a: Tensor, more: dict[str, Any], *, scale: Tensor) -> Any:
    return a * more["mask"][0] + more["ids"] + scale.sum()


def several() -> Built:
    ids = torch.tensor([[5], [6], [7]])
    more = {"mask": [ones(3, 1)], "ids": ids, "three": 3}
    return _several()[0], (ones(8, 3).t(), more), {"scale": ones(5)}


def unbatched() -> Built:
    return nn.ReLU(), (torch.tensor(1.0),)


def of_any_batch(batch_size: int = 3) -> Built:
    return nn.Linear(8, 4), (ones(5, batch_size),)


@model(
    *(lambda: ones(2, 8).half(), lambda: torch.tensor([0, 1])),
    product=lambda: nn.Linear(8, 4, dtype=torch.float16),
    norm=lambda: nn.LayerNorm(4),
)
def mixed(m: Any, input: Tensor, index: Tensor) -> Any:
    """A product of halves, then a norm in float32, whose index stays a whole number."""
    return m.norm(m.product(input).float())[index]


def loaded(build: str, device: str = "meta", **said: Any) -> LoadedModel:
    return load(ModelSpec(f"{__name__}:{build}", **said), device=device)


def dtypes(found: LoadedModel) -> set[torch.dtype]:
    return {p.dtype for p in found.module.parameters()}


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("build", "dtype"), [("full", "float32"), ("half", "float16"), ("mixed", "float16+float32")]
)
def test_dtypes_are_those_that_were_built(build: str, dtype: str, device: str) -> None:
    found = loaded(build, device)
    module, args = globals()[build]()
    assert found.dtype == dtype and "built" not in found.inputs
    assert dtypes(found) == {p.dtype for p in module.parameters()}
    assert [t.dtype for t in found.args] == [t.dtype for t in args]


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_layout_is_that_which_was_built_unless_another_is_asked_for(device: str) -> None:
    built, asked = loaded("last", device), loaded("last", device, memory_format="contiguous")
    assert (built.memory_format, asked.memory_format) == ("channels_last", "contiguous")
    for found, is_last in ((built, True), (asked, False)):
        for tensor in (*found.args, *(p for p in found.module.parameters() if p.dim() == 4)):
            assert tensor.is_contiguous(memory_format=torch.channels_last) == is_last
    assert asked.inputs["built"] == {"memory_format": "channels_last"}


def test_an_option_casts_and_the_workload_says_from_what() -> None:
    found = loaded("mixed", dtype="bfloat16")
    assert found.dtype == "bfloat16" and dtypes(found) == {torch.bfloat16}
    assert [t.dtype for t in found.args] == [torch.bfloat16, torch.int64]
    assert found.inputs["built"] == {"dtype": "float16+float32"}
    assert loaded("half", dtype="float32").inputs["built"] == {"dtype": "float16"}


def test_autocast_is_refused_where_the_model_was_built_in_halves() -> None:
    assert loaded("full", autocast="bfloat16").dtype == "float32"
    with pytest.raises(InputError, match="in float16: autocast is for a model in float32; add"):
        loaded("half", autocast="bfloat16")
    assert loaded("half", autocast="bfloat16", dtype="float32").dtype == "float32"


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_batch_is_that_of_the_inputs_that_share_their_first_size(device: str) -> None:
    assert loaded("several", device).batch_size == 3
    found = loaded("several", device, batch_size=7)
    a, more = found.args
    assert found.batch_size == 7 and found.inputs["built"] == {"batch_size": 3}
    assert a.shape == (7, 8) and more["mask"][0].shape == more["ids"].shape == (7, 1)
    assert found.kwargs["scale"].shape == (5,) and more["three"] == 3
    # A transposed input stays transposed; whole numbers are those that were there.
    assert a.stride() == (1, 7)
    assert found.inputs["args"][1]["ids"]["values"] == {"range": [5, 8]}
    assert loaded("several", device, batch_size=1).args[0].shape == (1, 8)


def test_a_callable_that_takes_a_batch_size_is_called_with_it() -> None:
    assert loaded("of_any_batch", batch_size=7).args[0].shape == (5, 7)
    assert loaded("of_any_batch").batch_size == 3
    with pytest.raises(InputError, match="example inputs without a batch, not of batch 2"):
        loaded("unbatched", batch_size=2)
