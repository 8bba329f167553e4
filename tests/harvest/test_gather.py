"""Many models harvested: what fails is told, and stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.errors import OpdbError
from opdb.harvest import finding
from opdb.harvest.finding import find_or_harvest
from opdb.harvest.passes import harvest
from opdb.records import Stored, Workload
from opdb.spec import ModelSpec
from opdb.store import Store, open_store

MLP = ModelSpec("mlp", input_size=(16,))


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
