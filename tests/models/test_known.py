"""Models that ask for values of indices and masks are harvested on meta, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.models.construction import load_from
from opdb.spec import ModelSpec
from tests.own import Builder, model

harvesting = import_module("opdb.harvest.passes")  # `opdb.harvest` is the verb


HERE = "tests.models.test_known"
IDS = torch.arange(12).view(2, 6) % 8
LISTED = IDS.tolist()


def asking(ask: Callable[[Tensor, Tensor], Any]) -> Builder:
    """An embedding of its input, then one of two layers: whichever the answer picks."""

    @model(
        lambda: IDS,
        embedding=lambda: nn.Embedding(8, 4),
        yes=lambda: nn.Linear(4, 4),
        no=lambda: nn.Linear(4, 2),
    )
    def asks(m: Any, ids: Tensor) -> Any:
        x = m.embedding(ids)
        return (m.yes if ask(ids, x) else m.no)(x)

    return asks


contains = asking(lambda ids, x: 9 in ids[:, [-1, 0]])
item = asking(lambda ids, x: (ids.max() - ids.min()).item() < 8)
equal = asking(lambda ids, x: torch.equal(ids, ids.clone()))
made = asking(lambda ids, x: torch.arange(4, device=ids.device).float().mean().item() > 1)
listed = asking(lambda ids, x: ids.tolist() == LISTED)
array = asking(
    lambda ids, x: ids.numpy().tolist() == LISTED and np.asarray(ids.cpu()).tolist() == LISTED
)
unknown = asking(lambda ids, x: (x.sum() > 1000).item())
unknown_copy = asking(lambda ids, x: (x.cpu().sum() > 1000).item())


@asking
def emptied(ids: Tensor, x: Tensor) -> Any:
    """Whether a mask is full, a view of which was emptied."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, [-1, 0]] = False
    return mask.all()


@asking
def shaped(ids: Tensor, x: Tensor) -> Any:
    """Whether so many of the ids are small, by a shape that hangs on values."""
    found = torch.where(ids < 9)[0]
    assert x[ids < 9].shape[0] == found.shape[0]
    return found.numel() == ids.numel()


@asking
def copied(ids: Tensor, x: Tensor) -> Any:
    into = torch.empty(2, 6, dtype=torch.int64).copy_(ids)
    return into.tolist() == LISTED and ids.cpu().sum() == ids.to("cpu").sum() == 34


@asking
def returned(ids: Tensor, x: Tensor) -> Any:
    """From the device to a list and an array, and back."""
    there = torch.tensor(ids.tolist(), device=ids.device)
    same = torch.as_tensor(ids.cpu().numpy(), device=ids.device) == there
    return same.all() and ids.new_tensor([7]) == there.max()


@asking
def sized(ids: Tensor, x: Tensor) -> Any:
    """By sizes that were written into empty memory."""
    sizes = torch.empty(2, dtype=torch.int64, device=ids.device)
    sizes[0], sizes[1] = x.shape[:2]
    return bool(sizes.prod() == ids.numel()) and len(x.split(sizes.new_ones(2).tolist())) == 2


@asking
def spoiled(ids: Tensor, x: Tensor) -> Any:
    """A mask into which something is written that is not known."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask.copy_(x[..., 0] > 1000)
    return mask.any()


@asking
def filled(ids: Tensor, x: Tensor) -> Any:
    """Empty memory into which something is written that is not known."""
    mask = torch.empty(2, 6, dtype=torch.bool, device=ids.device)
    mask[:, :3] = x[:, :3, 0] > 1000
    mask[:, 3:] = False
    return mask.any()


@model(
    lambda: IDS,
    embedding=lambda: nn.Embedding(8, 4),
    yes=lambda: nn.Linear(4, 4),
    no=lambda: nn.Linear(4, 2),
    table=lambda: torch.tensor([5, 7]).cumsum(0),
)
def held(m: Any, ids: Tensor) -> Any:
    """A model that asks a table which it was built with."""
    return (m.yes if m.table.max().item() == 12 else m.no)(m.embedding(ids))


@model(
    *((3, 7, 8), lambda: torch.tensor([7, 3, 1])),
    lstm=lambda: nn.LSTM(8, 16, batch_first=True),
)
def packed(m: Any, rows: Tensor, lengths: Tensor) -> Any:
    return m.lstm(rnn.pack_padded_sequence(rows, lengths, batch_first=True))[0].data


def test_the_lengths_of_packed_sequences_are_known_on_meta() -> None:
    found, _, _ = harvesting._passed(checked(ModelSpec(f"{__name__}:packed")), "meta")
    kinds = [call.configuration.kind for call in found.calls]
    assert kinds[-2:] == ["pack_padded_sequence", "lstm"] and found.unsupported == {}


def devices_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the devices that models are loaded onto from here on, as they are."""
    found: list[str] = []

    def noting(request: Any, device: str) -> Any:
        found.append(device)
        return load_from(request, device)

    monkeypatch.setattr("opdb.models.construction.load_from", noting)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("contains", "item", "equal", "made", "emptied", "shaped"),
        *("listed", "copied", "array", "returned", "sized", "held"),
    ],
)
def test_what_is_known_is_answered_on_meta_as_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    devices = devices_of(monkeypatch)
    request = ModelSpec(f"{HERE}:{name}")
    before = torch.random.get_rng_state()
    found = harvest(request)
    assert devices == ["meta"] and torch.equal(torch.random.get_rng_state(), before)
    wanted = harvesting._passed(request, "cpu")[0]
    assert found.calls == wanted.calls and found.unsupported == wanted.unsupported
    linear = [c.configuration for c in found.calls if c.configuration.kind == "linear"]
    [weight] = [each.inputs["weight"]["shape"] for each in linear]
    assert weight == ([2, 4] if name in ("contains", "emptied") else [4, 4])


@pytest.mark.parametrize("name", ["unknown", "spoiled", "unknown_copy", "filled"])
def test_what_hangs_on_weights_is_asked_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    devices = devices_of(monkeypatch)
    found = harvest(ModelSpec(f"{HERE}:{name}"))
    assert devices == ["meta", "cpu"]
    [linear] = [c.configuration for c in found.calls if c.configuration.kind == "linear"]
    assert linear.inputs["weight"]["shape"] == [2, 4]


# Small models of transformers that ask for values are harvested on meta, as on the CPU


transformers: Any = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 2,
    "patch_size": 4,
}
"""Two images of other sizes, for which lists are made of a tensor."""
