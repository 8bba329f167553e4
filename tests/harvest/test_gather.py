"""Many models harvested: what fails is told, and stops nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from opdb.errors import OpdbError
from opdb.harvest import finding
from opdb.harvest.finding import HarvestPolicy, find_or_harvest
from opdb.harvest.passes import harvest
from opdb.progress import Progress
from opdb.records import Stored, Workload
from opdb.spec import ModelSpec
from opdb.store import Store, open_store

MLP = ModelSpec("mlp", input_size=(16,))


def told(found: Sequence[object]) -> list[str | None]:
    return [str(one) if isinstance(one, OpdbError) else None for one in found]


class Heard(Progress):
    """Keeps the name of each model whose harvest is over."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._doing = ""

    def doing(self, what: str) -> None:
        self._doing = what.split()[0]

    def done(self, count: int = 1) -> None:
        self.names.append(self._doing)


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    heard = Heard()
    missing = ModelSpec("resnet81", source="torchvision")
    requests = [MLP, missing, ModelSpec("mlp", input_size=(8,))]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        found = find_or_harvest(store, [*requests, MLP], HarvestPolicy("nothing"), heard)
    assert list(found) == [repr(each) for each in requests], "each once"
    answers = [found[repr(each)] for each in requests]
    assert [isinstance(each, Stored) for each in answers] == [True, False, True]
    errors = told(answers)
    assert errors[0] is None and "did you mean" in str(errors[1])
    assert heard.names == ["mlp", "resnet81", "mlp"]


def test_what_is_known_is_not_harvested_and_what_cannot_be_looked_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other = harvest(MLP), ModelSpec("mlp", input_size=(8,))

    def look(store: Store, request: ModelSpec) -> Workload:
        if request == other:
            raise OpdbError("it cannot be said which")
        return known

    monkeypatch.setattr(finding, "stored_workload", look)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        first, second = find_or_harvest(store, [MLP, other]).values()
    assert isinstance(first, Stored) and first.workload is known and first.harvest_s is None
    assert str(second) == "it cannot be said which"
