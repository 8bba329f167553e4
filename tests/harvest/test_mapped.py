"""Calls below torch.vmap, of exported modules, and of models that hold sparse tensors."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
import torchvision

from opdb.estimates.features import units
from opdb.harvest.passes import harvest, record
from opdb.kinds import KINDS
from opdb.models import LoadedModel
from opdb.models.inputs import describe
from opdb.records import Call, Phase, Workload
from opdb.spec import ModelSpec


def own(name: str, phase: Phase = "inference") -> Workload:
    path = f"tests.harvest.mapped_models:{name}"
    return harvest(ModelSpec(path, source="python", phase=phase))


def flops_of_products(workload: Workload) -> int:
    """Return what torch's own counter counts: products alone."""
    found = [(KINDS[call.configuration.kind], call.configuration) for call in workload.calls]
    return sum(kind.flops(c) for kind, c in found if units(kind) != "memory")


def shapes(workload: Workload, kind: str) -> list[list[int]]:
    """Return the shapes of the inputs of the only configuration of a kind."""
    calls = [call.configuration for call in workload.calls if call.configuration.kind == kind]
    [found] = {each.key: each for each in calls}.values()
    return [spec["shape"] for spec in found.inputs.values()]


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # as torch.utils.flop_counter counts them on a CPU
        ("linear", 384),
        ("by_keyword", 384),
        ("along_another", 384),
        ("nested", 1920),
        ("matvec", 128),
        ("ensemble", 384),
        ("convolution", 349_920),
        ("weights_apart", 169_344),
    ],
)
def test_what_vmap_maps_is_described_as_it_runs(name: str, flops: int) -> None:
    workload = own(name)
    assert flops_of_products(workload) == flops
    assert not workload.unsupported


def test_mapped_calls_have_the_shapes_of_whole_batches() -> None:
    assert shapes(own("linear"), "mm") == [[6, 8], [8, 4]]
    assert shapes(own("ensemble"), "bmm") == [[3, 2, 8], [3, 8, 4]]
    assert shapes(own("convolution"), "conv2d")[0] == [10, 3, 9, 9]
    assert shapes(own("norm"), "layer_norm")[0] == [5, 2, 8]


def test_randomness_says_how_much_is_drawn() -> None:
    sizes = {
        name: next(
            c.configuration.parameters["size"]
            for c in own(name).calls
            if c.configuration.kind == "randn"
        )
        for name in ("drawn_apart", "drawn_once")
    }
    assert sizes == {"drawn_apart": [5, 8], "drawn_once": [8]}


def _calls(module: torch.nn.Module, given: torch.Tensor) -> list[Call]:
    inputs = {"args": [describe(given)], "kwargs": {}}
    with torch.no_grad():
        return record(LoadedModel("own", "python", "1", module, (given,), {}, inputs, 2)).calls


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_exported_vision_models_make_the_calls_of_the_plain_ones(name: str) -> None:
    """Changed in place or not, on meta as on a CPU, each call has the plain one's key."""
    plain = torchvision.models.get_model(name, weights=None).eval()
    given = torch.randn(2, 3, 64, 64)
    exported = torch.export.export(copy.deepcopy(plain), (given,)).module().to("meta")
    found, wanted = (
        Counter(
            call.configuration.key
            for call in _calls(module, given.to("meta"))
            if KINDS[call.configuration.kind].launches(call.configuration)
        )
        for module in (exported, plain.to("meta"))
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("name", "multiplied"),
    [
        ("sparse_buffer", True),
        ("sparse_parameter", True),
        ("sparse_rows", True),
        ("sparse_blocks", True),
        ("sparse_input", True),
        ("sparse_input_of_rows", True),
        ("sparse_unused", False),
    ],
)
def test_a_model_with_a_sparse_tensor_is_harvested(name: str, multiplied: bool) -> None:
    workload = own(name)
    assert flops_of_products(workload) == 3200
    assert workload.unsupported == ({"torch.sparse.mm": 1} if multiplied else {})
