"""What a model calls while a CUDA graph captures it, found without a GPU."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest

from opdb.harvest.passes import harvest_in_both
from opdb.models import LoadedModel
from opdb.operators import build
from opdb.records import Harvest, Workload
from opdb.spec import ModelSpec
from tests.harvest import captured_models

harvesting = import_module("opdb.harvest.passes")  # `opdb.harvest` is the verb


ATTENTION = "scaled_dot_product_attention"


def own(name: str) -> Harvest:
    return harvest_in_both(ModelSpec(captured_models.path(name)))


def added(found: Harvest) -> tuple[Counter[str], Counter[str]]:
    """Return the kinds that are called more often while captured, and those less often."""
    assert found.captured is not None
    counts = [
        Counter(c.configuration.kind for c in w.calls) for w in (found.workload, found.captured)
    ]
    return counts[1] - counts[0], counts[0] - counts[1]


def masks(workload: Workload) -> list[bool]:
    """Return of each attention whether it is given a mask."""
    return ["attn_mask" in c.inputs for c in workload.occurrences() if c.kind == ATTENTION]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what each pass told, as passes are made."""
    made: list[bool] = []
    record = harvesting.record

    def watched(loaded: LoadedModel, **options: object) -> object:
        made.append(bool(options["capturing"]))
        return record(loaded, **options)

    monkeypatch.setattr(harvesting, "record", watched)
    return made


@pytest.mark.parametrize("name", ["causal", "causal_by_name"])
def test_a_model_that_asks_is_run_again_and_told_that_it_is_captured(
    name: str, passes: list[bool]
) -> None:
    found = own(name)
    assert passes == [False, True]
    assert added(found)[0] == {"arange": 1, "ge": 1, "getitem": 2}
    assert found.failure is None
    assert masks(found.workload) == [False] and masks(found.captured) == [True]
    assert found.captured.captured and not found.workload.captured
    assert found.captured.unsupported == {}
    for configuration in found.captured.occurrences():
        build(configuration, device="cpu")()


def test_values_that_eager_alone_reads_take_both_passes_to_the_cpu(passes: list[bool]) -> None:
    found = own("reads_values_in_eager")
    assert passes == [False, False, True]  # on meta in vain, then on the CPU
    assert {"gt", "all"} <= added(found)[1].keys() and not added(found)[0]


def test_gpt2_alone_masks_what_its_version_of_transformers_masks() -> None:
    """Up to 5.17 it makes its mask while captured whatever its inputs; since 5.18 for padding."""
    transformers = pytest.importorskip("transformers")
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    found = harvest_in_both(ModelSpec("gpt2"))
    if version >= (5, 18):
        assert found == Harvest(found.workload)
        return
    more, fewer = added(found)
    assert more.keys() >= {"arange", "le", "add"} and not fewer
    assert masks(found.workload) == [False] and masks(found.captured) == [True]
