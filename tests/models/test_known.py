"""Models that ask for values of indices and masks are harvested on meta, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb import harvest as harvesting
from opdb.harvest import harvest
from opdb.models import ModelRequest, load
from opdb.models.construction import load_from
from opdb.models.known import MOST_ELEMENTS, KnownValues

HERE = "tests.models.test_known"
IDS = torch.arange(12).view(2, 6) % 8


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


def unknown(**_: Any) -> Any:
    return Asking(lambda ids, x: (x.sum() > 1000).item()), (IDS,)


def spoiled(**_: Any) -> Any:
    """A mask into which something is written that is not known."""

    def ask(ids: Tensor, x: Tensor) -> Any:
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask.copy_(x[..., 0] > 1000)
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


@pytest.mark.parametrize("name", ["contains", "item", "equal", "made", "emptied", "shaped"])
def test_what_is_known_is_answered_on_meta_as_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    devices = devices_of(monkeypatch)
    request = ModelRequest(f"{HERE}:{name}")
    before = torch.random.get_rng_state()
    found = harvest(request)
    assert devices == ["meta"] and torch.equal(torch.random.get_rng_state(), before)
    loaded = load(request, device="cpu")
    wanted = harvesting._recorded(request, loaded, "cpu").workload
    assert found.calls == wanted.calls and found.unsupported == wanted.unsupported
    linear = [c.configuration for c in found.calls if c.configuration.kind == "linear"]
    [weight] = [each.inputs["weight"]["shape"] for each in linear]
    assert weight == ([2, 4] if name in ("contains", "emptied") else [4, 4])


@pytest.mark.parametrize("name", ["unknown", "spoiled"])
def test_what_hangs_on_weights_is_asked_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    devices = devices_of(monkeypatch)
    found = harvest(ModelRequest(f"{HERE}:{name}"))
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
