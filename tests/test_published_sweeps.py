"""The published sweeps: what they hold, and that all else is as it is without them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from opdb.algorithms.names import ALGORITHMS
from opdb.cli.swept import MODELS
from opdb.derive.runs import run_cost
from opdb.records import ALGORITHM_SETTING
from opdb.store import Store, open_store
from opdb.store.exchange import export_set, import_set
from opdb.sweep.cells import state_of
from opdb.sweep.stages import spread_sizes
from tests import published
from tests.cli.conftest import Opdb, opdb

__all__ = ["opdb"]
SWEEPS = published.SET.with_name("nvidia-h200-sweeps")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that holds the published operators and then the sweeps."""
    path = published.copy_to(tmp_path_factory.mktemp("sweeps") / "both.sqlite")
    with open_store(str(path)) as store:
        import_set(store, SWEEPS)
    return path


def test_each_cell_of_the_quick_stage_is_there_and_a_full_one(both: Path) -> None:
    """Energy wherever a run is good, with an interval; a reason wherever it is not."""
    found: Counter[tuple[str, str, int]] = Counter()
    with open_store(str(both)) as store:
        heads = {head.workload.key: head.workload for head in store.heads()}
        forced = [run for run in store.model_runs(setting=None) if run.setting]
    for run in forced:
        workload = heads[run.workload]
        size = workload.inputs["args"][0]["shape"][-1]
        found[workload.name, run.setting[ALGORITHM_SETTING], size] += 1
        state = state_of(run.outcome, run.facts)
        if state == "unsupported":
            assert "CUDNN_STATUS_NOT_SUPPORTED" in (run.reason or "") and not run.repeats
            continue
        cost = run_cost([run])
        assert state in ("full", "partial") and cost is not None and cost.energy_j is not None
        assert cost.time_s.low is not None and cost.energy_j.low is not None and run.layers
    cells = {(m, a, s) for m in MODELS for a in ALGORITHMS for s in spread_sizes(10)}
    cells |= {("resnet152", "implicit precomp gemm", s) for s in spread_sizes(100)}
    assert found == dict.fromkeys(cells, 1)


def everything_asked_for(opdb: Opdb, path: Path) -> object:
    document = json.loads(opdb("status", "--json", "--db", str(path)).out)
    del document["database"], document["swept_workloads"]
    for device in document["devices"]:
        del device["boards"], device["campaigns"]
    return document


def test_status_is_that_of_the_operators_alone(opdb: Opdb, both: Path) -> None:
    alone = everything_asked_for(opdb, published.database())
    assert everything_asked_for(opdb, both) == alone
    said = opdb("status", "--db", str(both)).out
    assert said.endswith("workloads that only sweeps asked for: opdb sweep --status\n")
    assert "pending" not in said


def test_two_sets_of_one_device_come_out_as_one(both: Path, tmp_path: Path) -> None:
    def kept(store: Store) -> object:
        runs = sorted((run.id, run.campaign) for run in store.model_runs(setting=None))
        return runs, store.swept_keys(), {c.id for c in store.campaigns()}, store.heads()

    with open_store(str(both)) as store:
        said = export_set(store, tmp_path / "union", device=published.DEVICE)
        before = kept(store)
    with open_store(str(tmp_path / "again.sqlite")) as store:
        found = import_set(store, tmp_path / "union")
        assert dict(found.added) == said and kept(store) == before
        import_set(store, SWEEPS)
        import_set(store, published.SET)
        assert kept(store) == before
