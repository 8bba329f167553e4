"""Workloads that only sweeps asked for: kept, published, and nothing of them pending."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.records import Call, ModelRun, Workload
from opdb.store import Store, open_store
from opdb.store.sets import export_set
from tests.published import import_set
from tests.store import samples

DEVICE = "nvidia-h200"
WANTED = samples.workload()
ONLY_THERE = replace(samples.ADD, kind="mul")
SWEPT = replace(samples.workload("other"), calls=(*WANTED.calls, Call(ONLY_THERE, "function")))
FORCED = {"convolution_algorithm": "fft"}


def forced_run(of: Workload) -> ModelRun:
    return replace(samples.model_run(of, "run-9"), setting=FORCED)


@pytest.fixture
def swept(filled: Store) -> Store:
    """A store with a model that is wanted and one that a sweep ran."""
    filled.save_workload(SWEPT, swept=True)
    filled.save_model_run(forced_run(SWEPT))
    return filled


def pending(store: Store) -> dict[str, int]:
    """Return what is pending by kind."""
    return dict(store.standing(DEVICE).pending)


def test_nothing_of_a_sweep_is_pending(swept: Store) -> None:
    assert pending(swept) == {"add": 1}
    assert swept.swept_keys() == {SWEPT.key}
    assert {h.workload.key: h.swept for h in swept.heads()} == {WANTED.key: False, SWEPT.key: True}
    assert {workload.key for workload in swept.workloads()} == {WANTED.key, SWEPT.key}


def test_a_harvest_for_its_own_sake_asks_for_it(swept: Store) -> None:
    swept.save_workload(SWEPT)
    assert pending(swept) == {"add": 1, "mul": 1} and not swept.swept_keys()
    swept.save_workload(SWEPT, swept=True)
    assert not swept.swept_keys()


def test_it_is_published_as_swept(swept: Store, tmp_path: Path) -> None:
    export_set(swept, tmp_path / "set", device=DEVICE)
    with open_store(str(tmp_path / "other.sqlite")) as other:
        for _ in range(2):
            import_set(other, tmp_path / "set")
            assert pending(other) == {"add": 1} and other.swept_keys() == {SWEPT.key}
        other.save_workload(SWEPT)
        import_set(other, tmp_path / "set")
        assert not other.swept_keys()
