"""Two policies of which stored harvest counts: of all that measures, and of all that reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.harvests import measuring
from opdb.harvest import digest, passes
from opdb.harvest.finding import standing, stored_workload, workload_of
from opdb.harvest.passes import harvest_in_both
from opdb.spec import ModelSpec
from opdb.store import open_store

REQUEST = ModelSpec("mlp", batch_size=2)


def test_measuring_asks_for_the_digest_and_reading_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "fingerprint", lambda request: "of today")
    found = replace(harvest_in_both(REQUEST), fingerprint="of today")
    monkeypatch.setattr(passes, "harvest_in_both", lambda request: found)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        store.save_workload(found.workload, fingerprint="of yesterday")
        assert stored_workload(store, REQUEST) == found.workload
        assert standing(store, REQUEST) is None
        assert not workload_of(store, REQUEST, measuring()).stood
        assert workload_of(store, REQUEST, measuring()).stood


def test_what_a_sweep_asks_for_is_not_pending_until_somebody_else_asks(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        key = workload_of(store, REQUEST, measuring(swept=True)).found.workload.key
        workload_of(store, REQUEST, measuring(swept=True))
        assert store.swept_keys() == {key}
        workload_of(store, REQUEST, measuring())
        assert not store.swept_keys()
