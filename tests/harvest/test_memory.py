"""What a harvest sees live at once is what a device must hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.harvest.passes import harvest
from opdb.records import Mode, PassMemory
from opdb.spec import ModelSpec
from opdb.store.sets import opened
from tests.own import Built, model

SETS = Path(__file__).parents[2] / "db"
MEGA = 1_000_000
SIDE = 500
"""A tensor of 500 x 500 float32 has 1 MB."""


@model((SIDE, SIDE))
def chain(m: Any, x: Tensor) -> Tensor:
    """Six calls of which two outputs live at once, and a tensor that is kept for the end."""
    kept = x.sin()
    for _ in range(5):
        x = x.cos()
    return kept + x


def layers() -> Built:
    one, other = (nn.Linear(SIDE, SIDE, bias=False) for _ in range(2))
    other.weight = one.weight
    parts = {"one": lambda: one, "other": lambda: other, "kept": lambda: torch.zeros(SIDE, SIDE)}
    return model((SIDE, SIDE), **parts)(lambda m, x: m.other(m.one(x).relu_()))()


class Keeps(nn.Module):
    """Attends to a buffer that belongs to the samples, which it may write to; a table does not."""

    def __init__(self, batch_size: int, *, written: bool, dim: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE, SIDE, bias=False)
        self.kept: Tensor
        self.table: Tensor
        sizes = (batch_size, 1, SIDE, SIDE)
        kept = torch.zeros(sizes) if dim == 0 else torch.zeros(2, *sizes)
        self.written, self.dim = written, dim
        self.register_buffer("kept", kept)
        self.register_buffer("table", torch.zeros(1, SIDE, SIDE))

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) + self.table[:, :1]
        for kept in [self.kept] if self.dim == 0 else self.kept:
            if self.written:
                kept[:, :, 7:8] = x[:, None]
            x = (kept[:, 0] * x).sum(1, keepdim=True)
        return x


class Makes(nn.Module):
    """Makes a buffer of its input's batch in its first pass, and reads it in all later ones."""

    kept: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            self.register_buffer("kept", x.new_zeros(x.shape[0], SIDE, SIDE))
        return self.kept * x


def of_samples(batch_size: int = 1) -> Built:
    return Keeps(batch_size, written=True), (torch.zeros(batch_size, 1, SIDE),)


def of_layers_and_samples(batch_size: int = 1) -> Built:
    return Keeps(batch_size, written=True, dim=1), (torch.zeros(batch_size, 1, SIDE),)


def read_alone(batch_size: int = 2) -> Built:
    return Keeps(batch_size, written=False), (torch.zeros(batch_size, 1, SIDE),)


def made_first(batch_size: int = 1) -> Built:
    return Makes(), (torch.zeros(batch_size, 1, SIDE),)


@model((SIDE, SIDE))
def asks(m: Any, x: Tensor) -> Tensor:
    """Asks for a value of its input, so it runs on the CPU."""
    return x.sin() if float(x.sum()) > 0 else x.cos()


def memory(name: str, **asked: str | int) -> PassMemory:
    found = harvest(ModelSpec(f"{__name__}:{name}", **asked)).memory  # type: ignore[arg-type]
    assert found is not None
    return found


def test_what_nothing_holds_is_live_no_more() -> None:
    seen = memory("chain")
    assert (seen.weight_bytes, seen.input_bytes) == (0, MEGA)
    assert seen.activation_bytes == seen.peak_bytes == 3 * MEGA
    assert seen.gradient_bytes == 0


def test_a_shared_weight_counts_once_and_a_change_in_place_nothing() -> None:
    seen = memory("layers")
    assert seen.weight_bytes == 2 * MEGA
    assert seen.peak_bytes == 2 * MEGA


def test_a_training_step_has_gradients_and_keeps_what_they_need() -> None:
    seen = memory("layers", phase="training")
    assert seen.gradient_bytes == MEGA
    assert 3 * MEGA <= seen.activation_bytes <= seen.peak_bytes <= 6 * MEGA


@pytest.mark.parametrize(
    ("name", "weights", "each", "batches"),
    [
        ("of_samples", 2, 1, (1, 2, 8)),
        ("of_layers_and_samples", 2, 2, (1, 3, 8)),
        ("read_alone", 2, 1, (2, 8)),
        ("made_first", 0, 1, (1, 2, 8)),
    ],
)
def test_buffers_that_have_the_batch_in_their_shape_are_told_apart(
    name: str, weights: int, each: int, batches: tuple[int, ...]
) -> None:
    """A table does not, though its first size is that of a batch of 1."""
    for batch_size in batches:
        seen = memory(name, batch_size=batch_size)
        kept = each * batch_size * MEGA
        assert (seen.weight_bytes, seen.cache_bytes) == (weights * MEGA + kept, kept)


def _measured(name: str, where: str, mode: Mode = "eager") -> dict[int, int]:
    """Return the least that a published run of each batch size was seen to allocate, in bytes."""
    with opened(SETS / where, trusted=True) as store:
        found = {each.key: each for each in store.workloads(name)}
        runs = store.model_runs(mode=mode, setting=None)
    seen: dict[int, int] = {}
    for run in runs:
        workload = found.get(run.workload)
        if workload and run.peak_memory_bytes:
            plain = workload.dtype == "float32" and not workload.autocast
            shape = workload.inputs["args"][0]["shape"]
            if plain and shape[1:] in ([128], [3, 224, 224]):
                batch, peak = workload.batch_size, run.peak_memory_bytes
                seen[batch] = min(peak, seen.get(batch, peak))
    return seen


@pytest.mark.parametrize(
    ("name", "where", "phase"),
    [
        ("resnet50", "nvidia-h200-modes", "inference"),
        ("vit", "nvidia-h200-modes", "inference"),
        ("bert-base-uncased", "nvidia-h200-modes", "inference"),
        ("align", "nvidia-h200-modes", "inference"),
        ("resnet50", "nvidia-h200-training", "training"),
        ("mobilenet_v2", "nvidia-h200-training", "training"),
    ],
)
def test_memory_grows_with_the_batch_as_it_was_measured_to(
    name: str, where: str, phase: str
) -> None:
    """Beside it runs allocated what the session and the libraries held, whatever the batch."""
    if where == "nvidia-h200-modes" and name != "resnet50":
        pytest.importorskip("transformers")
    measured = _measured(name, where)
    low, high = sorted(measured)[-3 if len(measured) > 3 else 0], max(measured)
    needs = {}
    for batch in (low, high):
        seen = harvest(ModelSpec(name, batch_size=batch, phase=phase)).memory  # type: ignore[arg-type]
        needs[batch] = seen.weight_bytes + seen.input_bytes + seen.peak_bytes
    assert needs[high] < measured[high]
    grown = measured[high] - measured[low]
    assert needs[high] - needs[low] == pytest.approx(grown, rel=0.03, abs=8 * MEGA)
