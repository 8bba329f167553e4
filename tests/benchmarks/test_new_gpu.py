"""The study of a new GPU, on a part of its budget: what it chooses, and what it finds."""

from __future__ import annotations

from benchmarks.new_gpu import informative, study, weights_of
from opdb.records import Configuration
from opdb.store import open_store
from tests.published import database


def test_what_carries_time_and_tells_of_others_comes_first() -> None:
    with open_store(str(database())) as store:
        workloads = [w for w in store.workloads() if w.name == "resnet18"]
    configurations = list({c: None for w in workloads for c in w.occurrences()})
    launching = [c for c in configurations if c.kind != "flatten"]
    order = informative(launching, weights_of(workloads), dict.fromkeys(_keys(launching), 1.0))
    assert sorted(_keys(order)) == sorted(_keys(launching))
    assert {c.kind for c in order[:10]} >= {"conv2d", "batch_norm"}
    alone = [c for c in order if c.kind == "conv2d"][:2]
    assert alone[0].inputs != alone[1].inputs
    dear = dict.fromkeys(_keys(launching), 1.0) | {order[0].key: 1e6}
    assert informative(launching, weights_of(workloads), dear)[-1] == order[0]


def test_more_seconds_leave_less_to_estimate() -> None:
    with open_store(str(database())) as store:
        few, more = study(store, (60.0, 150.0))
    assert few.gpu_seconds <= 60 < more.gpu_seconds <= 150
    assert few.configurations < more.configurations and few.refused > more.refused
    assert few.unmeasured > more.unmeasured > 0
    assert more.operators is not None and 0 < more.operators < 0.3
    assert more.inside is not None and more.inside > 0.8
    assert few.runs + few.refused_runs == more.runs + more.refused_runs > 20


def _keys(configurations: list[Configuration]) -> list[str]:
    return [c.key for c in configurations]
