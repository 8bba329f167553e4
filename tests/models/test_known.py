"""Models that ask for values of indices and masks are harvested on meta, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.models.construction import load_from
from opdb.models.known import MOST_ELEMENTS, KnownValues
from opdb.spec import ModelSpec

harvesting = import_module("opdb.harvest.passes")  # `opdb.harvest` is the verb


HERE = "tests.models.test_known"
IDS = torch.arange(12).view(2, 6) % 8
LISTED = IDS.tolist()


class Asking(nn.Module):
    """An embedding of its input, then one of two layers: whichever the answer picks."""

    def __init__(self, ask: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.embedding, self.ask = nn.Embedding(8, 4), ask
        self.yes, self.no = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        y: Tensor = (self.yes if self.ask(ids, x) else self.no)(x)
        return y


def changed(ids: Tensor, x: Tensor) -> Any:
    """Whether a mask is full, a view of which was emptied."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, [-1, 0]] = False
    return mask.all()


def counted(ids: Tensor, x: Tensor) -> Any:
    """Whether so many of the ids are small, by a shape that hangs on values."""
    found = torch.where(ids < 9)[0]
    assert x[ids < 9].shape[0] == found.shape[0]
    return found.numel() == ids.numel()


def contains(**_: Any) -> Any:
    return Asking(lambda ids, x: 9 in ids[:, [-1, 0]]), (IDS,)


def item(**_: Any) -> Any:
    return Asking(lambda ids, x: (ids.max() - ids.min()).item() < 8), (IDS,)


def equal(**_: Any) -> Any:
    return Asking(lambda ids, x: torch.equal(ids, ids.clone())), (IDS,)


def made(**_: Any) -> Any:
    def ask(ids: Tensor, x: Tensor) -> Any:
        return torch.arange(4, device=ids.device).float().mean().item() > 1

    return Asking(ask), (IDS,)


def emptied(**_: Any) -> Any:
    return Asking(changed), (IDS,)


def shaped(**_: Any) -> Any:
    return Asking(counted), (IDS,)


def listed(**_: Any) -> Any:
    return Asking(lambda ids, x: ids.tolist() == LISTED), (IDS,)


def copied(**_: Any) -> Any:
    def ask(ids: Tensor, x: Tensor) -> Any:
        into = torch.empty(2, 6, dtype=torch.int64).copy_(ids)
        return into.tolist() == LISTED and ids.cpu().sum() == ids.to("cpu").sum() == 34

    return Asking(ask), (IDS,)


def array(**_: Any) -> Any:
    """Through NumPy, from the tensor and from its copy."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        return ids.numpy().tolist() == LISTED and np.asarray(ids.cpu()).tolist() == LISTED

    return Asking(ask), (IDS,)


def returned(**_: Any) -> Any:
    """From the device to a list and an array, and back."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        there = torch.tensor(ids.tolist(), device=ids.device)
        same = torch.as_tensor(ids.cpu().numpy(), device=ids.device) == there
        return same.all() and ids.new_tensor([7]) == there.max()

    return Asking(ask), (IDS,)


def sized(**_: Any) -> Any:
    """By sizes that were written into empty memory."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        sizes = torch.empty(2, dtype=torch.int64, device=ids.device)
        sizes[0], sizes[1] = x.shape[:2]
        return bool(sizes.prod() == ids.numel()) and len(x.split(sizes.new_ones(2).tolist())) == 2

    return Asking(ask), (IDS,)


class Held(Asking):
    """A model that asks a table which it was built with."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__(lambda ids, x: self.table.max().item() == 12)
        self.register_buffer("table", torch.tensor([5, 7]).cumsum(0))


def held(**_: Any) -> Any:
    return Held(), (IDS,)


def unknown(**_: Any) -> Any:
    return Asking(lambda ids, x: (x.sum() > 1000).item()), (IDS,)


def spoiled(**_: Any) -> Any:
    """A mask into which something is written that is not known."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask.copy_(x[..., 0] > 1000)
        return mask.any()

    return Asking(ask), (IDS,)


def unknown_copy(**_: Any) -> Any:
    return Asking(lambda ids, x: (x.cpu().sum() > 1000).item()), (IDS,)


def filled(**_: Any) -> Any:
    """Empty memory into which something is written that is not known."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        mask = torch.empty(2, 6, dtype=torch.bool, device=ids.device)
        mask[:, :3] = x[:, :3, 0] > 1000
        mask[:, 3:] = False
        return mask.any()

    return Asking(ask), (IDS,)


def devices_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the devices that models are loaded onto from here on, as they are."""
    found: list[str] = []

    def noting(source: Any, request: Any, device: str) -> Any:
        found.append(device)
        return load_from(source, request, device)

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
    loaded = load(request, device="cpu")
    wanted = harvesting._recorded(request, loaded, "cpu").workload
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


def test_what_is_large_or_gone_is_not_kept() -> None:
    known = KnownValues()

    def run(operator: Any, args: Any, kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    def ones(*shape: int) -> Tensor:
        given: Tensor = known.run(torch.ops.aten.ones.default, (shape,), {"device": "meta"}, run)
        return given

    assert known.value(ones(MOST_ELEMENTS + 1)) is None
    kept = ones(3)
    for _ in range(2000):
        ones(2)
    assert torch.equal(known.value(kept[1:]), torch.ones(2))  # type: ignore[arg-type]
    assert len(known._held) < 1000
    kept.resize_(5)
    assert known.value(kept) is None


def test_no_values_are_drawn_of_an_input_too_large_to_keep_them() -> None:
    described = {"shape": [2**40], "dtype": "int64", "values": {"range": [0, 8]}}
    given = torch.empty(2**40, dtype=torch.int64, device="meta")
    known = KnownValues()
    known.declare(described, given)  # 8 TiB, which no machine that runs tests grants
    assert known.value(given) is None
