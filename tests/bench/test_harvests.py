"""Two policies of which stored harvest counts: of all that measures, and of all that reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench import harvests
from opdb.harvest import gather, harvest_in_both
from opdb.lookup.workloads import stored_workload
from opdb.models import ModelRequest
from opdb.store import open_store

REQUEST = ModelRequest("mlp", batch_size=2)


def test_measuring_asks_for_the_digest_and_reading_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvests, "fingerprint", lambda request: "of today")
    found = replace(harvest_in_both(REQUEST), fingerprint="of today")
    monkeypatch.setattr(gather, "harvest_in_both", lambda request: found)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        store.save_workload(found.workload, fingerprint="of yesterday")
        assert stored_workload(store, REQUEST) == found.workload
        assert harvests.standing(store, REQUEST) is None
        assert not harvests.harvest_into(store, REQUEST).stood
        assert harvests.harvest_into(store, REQUEST).stood


def test_what_a_sweep_asks_for_is_not_pending_until_somebody_else_asks(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        key = harvests.harvest_into(store, REQUEST, swept=True).found.workload.key
        harvests.harvest_into(store, REQUEST, swept=True)
        assert store.swept_keys() == {key}
        harvests.harvest_into(store, REQUEST)
        assert not store.swept_keys()
