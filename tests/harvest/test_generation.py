"""A whole generation from a few of its steps is the one that is recorded token by token."""

from __future__ import annotations

from typing import Any

import pytest

from opdb.harvest import passes as harvesting
from opdb.harvest.passes import harvest, harvest_in_both
from opdb.records import Workload
from opdb.spec import ModelSpec

pytest.importorskip("transformers")


def asked(name: str, tokens: int, **said: Any) -> ModelSpec:
    return ModelSpec(
        f"tests.models.decoders:{name}",
        phase="generate",
        max_new_tokens=tokens,
        **{"input_size": (9,), "batch_size": 2, **said},
    )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The passes of which each recording consists."""
    seen: list[int] = []
    real = harvesting.Passes

    class Counted(real):  # type: ignore[valid-type, misc]
        def __init__(self, model: Any, passes: int, settled: bool) -> None:
            seen.append(passes)
            super().__init__(model, passes, settled)

    monkeypatch.setattr(harvesting, "Passes", Counted)
    return seen


def whole(request: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """Harvest a generation with each of its steps recorded."""
    monkeypatch.setattr(harvesting, "FEW", request.max_new_tokens)
    return harvest(request)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize(
    ("name", "tokens", "most"),
    [("llama", 30, 13), ("experts", 30, 13), ("windowed", 60, 60)],  # a window fills up after 7
)
def test_steps_between_recorded_ones_are_those_of_the_generation(
    name: str,
    tokens: int,
    most: int,
    cache: str,
    passes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = asked(name, tokens, cache=cache, dtype="bfloat16")
    found = harvest_in_both(request)
    assert found.notes == ()
    assert 0 < sum(passes) <= most
    grown, truth = found.workload, whole(request, monkeypatch)
    assert grown.calls == truth.calls
    assert [call.path for call in grown.calls] == [call.path for call in truth.calls]
    assert grown.key == truth.key
    for counted in ("containers", "foreign_leaves", "unsupported"):
        assert getattr(grown, counted) == getattr(truth, counted)
    assert grown.memory.weight_bytes == truth.memory.weight_bytes
    assert grown.memory.input_bytes == truth.memory.input_bytes
    # a longer prompt stands for tokens: copies of it stay, 8 bytes a token and sequence
    more = grown.memory.peak_bytes - truth.memory.peak_bytes
    assert 0 <= more <= 8 * 2 * tokens


def test_a_short_generation_is_recorded_as_it_is(passes: list[int]) -> None:
    harvest(asked("llama", harvesting.FEW))
    assert passes == []


def test_what_few_steps_do_not_show_is_recorded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window fills up in a generation too short to look for where."""
    request = asked("windowed", 24, cache="dynamic")
    found = harvest_in_both(request)
    [note] = found.notes
    assert "all 24 passes of the generation were recorded" in note
    assert found.workload.calls == whole(request, monkeypatch).calls


def test_sizes_without_a_rule_are_recorded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr("opdb.growth.rules", none)
    found = harvest_in_both(asked("llama", 30))
    assert len(found.notes) == 1
    assert [c.configuration.kind for c in found.workload.calls].count("argmax") == 30
