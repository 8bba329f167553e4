"""Workloads that only sweeps asked for: kept, published, and nothing of them pending."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.records import Call, ModelRun, Workload
from opdb.store import Store, open_store
from opdb.store.exchange import export_set, import_set
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


def test_its_size_makes_no_weights_cold(swept: Store) -> None:
    """A bench asks for states of weights by the workloads that it is planned for."""
    assert [w.key for w in swept.workloads_of_unknown_size()] == [WANTED.key]
    swept.save_touched_bytes({WANTED.key: 10, SWEPT.key: 1000})
    assert swept.called_in([samples.CONV.key], ("at most", 100)) == {samples.CONV.key}
    assert swept.called_in([samples.CONV.key], ("above", 100)) == set()


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


def publish(folder: Path, *, swept: bool) -> Path:
    """Write a set of runs of one model: forced ones at which a sweep was at, or a usual one."""
    with open_store(str(folder.with_suffix(".sqlite"))) as store:
        store.save_workload(SWEPT, swept=swept)
        campaign = samples.campaign()
        campaign = replace(campaign, id=f"campaign-{folder.name}")
        store.save_campaign(campaign)
        run = replace(samples.model_run(SWEPT, f"run-{folder.name}"), campaign=campaign.id)
        store.save_model_run(replace(run, setting=FORCED if swept else {}))
        export_set(store, folder, device=DEVICE)
    return folder


@pytest.mark.parametrize("first", ["operators", "sweeps"])
def test_two_sets_of_one_device_are_taken_in_either_order_and_come_out_as_one(
    tmp_path: Path, first: str
) -> None:
    """What one of them asks for is asked for, whichever comes first or comes again."""
    sets = {
        name: publish(tmp_path / name, swept=name == "sweeps") for name in ("operators", "sweeps")
    }
    order = sorted(sets, key=lambda name: name != first)
    with open_store(str(tmp_path / "both.sqlite")) as both:
        for name in (*order, *order):
            import_set(both, sets[name])
        assert not both.swept_keys()
        [usual] = both.model_runs(SWEPT.key)
        [forced] = both.model_runs(SWEPT.key, setting=FORCED)
        assert (usual.id, forced.id) == ("run-operators", "run-sweeps")
        export_set(both, tmp_path / "union", device=DEVICE)
    with open_store(str(tmp_path / "again.sqlite")) as again:
        import_set(again, tmp_path / "union")
        assert {c.id for c in again.campaigns(DEVICE)} == {"campaign-operators", "campaign-sweeps"}
        assert again.model_runs(setting=None) == [usual, forced]
        export_set(again, tmp_path / "same", device=DEVICE)
    for file in (tmp_path / "union").iterdir():
        assert file.read_bytes() == (tmp_path / "same" / file.name).read_bytes()


def test_a_harvest_that_stands_is_asked_for_as_a_new_one_is(swept: Store) -> None:
    captured = replace(SWEPT, captured=True)
    swept.save_workload(SWEPT, captured, swept=True, fingerprint="a")
    assert swept.harvested("a") == (SWEPT, captured) and pending(swept) == {"add": 1}
    swept.ask_for(SWEPT)
    assert pending(swept) == {"add": 1, "mul": 1} and not swept.swept_keys()
