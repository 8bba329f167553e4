"""Models whose calls depend on values: they run on the CPU, as they would on a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.harvest.passes import WITH_VALUES, harvest, harvest_in_both
from opdb.models import checked
from opdb.records import Workload
from opdb.spec import ModelSpec
from tests.own import model


def by_kind(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.kind for call in workload.calls)


def own(name: str) -> str:
    return f"{__name__}:{name}"


def _keeps(x: Tensor) -> Tensor:
    """Keep what is positive, by another way on the CPU."""
    kept = x[x > 0].to(x.device) + torch.ones((), device=x.device)
    return kept.exp() if x.device.type == "cpu" or x.is_cpu else kept.sin()


asking = model((8,))(lambda m, x: _keeps(x))


@model(
    lambda: 100 + torch.randn(32, 64, generator=torch.Generator().manual_seed(1)),
    norm=lambda: nn.BatchNorm1d(64),
)
def drawing(m: Any, x: Tensor) -> Any:
    """Draws how much it keeps of a normalized input."""
    normal = m.norm(x)
    return normal[normal > torch.randn_like(normal)].exp()


def test_a_model_on_the_cpu_is_told_that_it_is_on_a_gpu() -> None:
    kinds = by_kind(harvest(ModelSpec(own("asking"))))
    assert kinds == {"gt": 1, "getitem": 1, "to": 1, "ones": 1, "add": 1, "sin": 1}


def test_sizes_that_depend_on_random_numbers_are_the_same_each_time() -> None:
    before = torch.get_rng_state()
    first, second = (harvest(ModelSpec(own("drawing"))) for _ in range(2))
    assert first.calls == second.calls
    [kept] = [c.inputs["input"]["shape"] for c in first.occurrences() if c.kind == "exp"]
    assert 0.4 < kept[0] / (32 * 64) < 0.6, "the norm's statistics are those of its input"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_harvest_says_that_it_ran_with_random_values() -> None:
    assert harvest_in_both(checked(ModelSpec(own("asking")))).notes == (WITH_VALUES,)
    assert harvest_in_both(checked(ModelSpec("mlp"))).notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_a_detector_is_harvested_whole(batch: int) -> None:
    found = harvest(ModelSpec("ssdlite320_mobilenet_v3_large", batch_size=batch))
    kinds = by_kind(found)
    assert found.unsupported == {}
    # one for each of 90 classes, above 25,000 boxes of an image on a GPU too
    assert kinds["nms"] == kinds["topk"] == 90 * batch
    assert kinds["conv2d"] == 98
    images = [c.inputs["input"]["shape"] for c in found.occurrences() if c.kind == "conv2d"]
    assert images[0] == [batch, 3, 320, 320]


@pytest.mark.slow
def test_a_detector_takes_a_gpus_way_through_its_boxes() -> None:
    found = harvest(ModelSpec("fasterrcnn_mobilenet_v3_large_320_fpn"))
    assert found.unsupported == {}
    # by coordinates that keep levels apart, all at once: on the CPU level by level
    assert by_kind(found)["nms"] == 1
