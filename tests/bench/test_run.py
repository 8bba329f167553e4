"""Campaigns on the processor, against a real database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from opdb.bench import host as host_times
from opdb.bench import run
from opdb.bench.plan import ROUNDS, SPREAD_SHARE, BenchRequest, is_duplicated
from opdb.bench.run import BenchResult, bench
from opdb.records import HostVisit
from opdb.store import Store
from tests.bench.calls import CONV, HUGE, IMPOSSIBLE, RELU, SQUARE, TANH, UNKNOWN, workload
from tests.heard import Heard

pytestmark = pytest.mark.usefixtures("short")


def benched(store: Store, heard: Heard | None = None, **options: object) -> BenchResult:
    request = replace(BenchRequest(device="cpu"), **options)  # type: ignore[arg-type]
    heard = heard or Heard()
    with heard.visiting(store):
        return bench(store, request, heard)


def outcomes(store: Store, result: BenchResult) -> dict[str, Counter[str]]:
    found = store.outcomes(result.device)
    return {
        key: Counter({str(o): n for o, n in counts.items()}) for (key, _), counts in found.items()
    }


def costs(store: Store, result: BenchResult) -> dict[str, int]:
    return {key: cost.visits for key, [cost] in store.costs(result.board).items()}


def test_what_models_call_is_visited_once_and_then_as_their_sums_want(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PRECISE", ("cpu",))
    called, alone = [CONV, RELU, SQUARE], TANH
    store.save_workload(workload(*called))
    store.save_configurations([alone])
    heard = Heard()
    asked: dict[str, Any] = {
        "rounds": None,
        "duplicates": 0.0,
        "precision": 1e9,
        "sum_precision": 1e9,
        "configurations": [c.key for c in (*called, alone)],
    }
    result = benched(store, heard, **asked)
    spread = sum(is_duplicated(c, SPREAD_SHARE) for c in called)
    assert heard.planned[0] == len(called) + spread + ROUNDS
    made = costs(store, result)
    assert made[alone.key] == ROUNDS
    assert result.sums.sums == result.sums.within == 1, "of times alone: no power is read here"
    assert result.reached.unjudged == 1, "the one of no model"
    assert benched(store, **asked).campaign is None


def test_a_bench_visits_everything_twice_and_derives_costs(store: Store) -> None:
    store.save_workload(workload(CONV, RELU, RELU, TANH, SQUARE))
    heard = Heard()
    result = benched(store, heard)
    assert result.outcomes == {"ok": 8} and result.configurations == 4
    assert 0 < result.cost_s <= result.elapsed_s
    assert (result.stopped, heard.planned) == (None, [8])
    order = [v.configuration for v in heard.visits]
    assert order[4:] == list(reversed(order[:4]))
    assert costs(store, result) == dict.fromkeys(order, 2)
    for [cost] in store.costs(result.board).values():
        assert cost.time_s.low is not None
        assert cost.energy_j is None and cost.reasons["energy_j"].startswith("no power")
    assert {v.outputs for v in store.visits(result.board)} == {"reused"}
    [campaign] = store.campaigns()
    assert campaign.id == result.campaign
    assert campaign.calibration.base_power_w is None
    assert campaign.calibration.notes[0].startswith("no base power: ")


def test_a_failure_stops_nothing_and_has_a_reason_instead_of_a_cost(store: Store) -> None:
    store.save_workload(workload(IMPOSSIBLE, HUGE, UNKNOWN, RELU))
    result = benched(store)
    found = outcomes(store, result)
    assert found[RELU.key] == {"ok": 2}
    assert set(found[IMPOSSIBLE.key]) == {"error"}
    assert set(found[HUGE.key]) == {"out_of_memory"}
    assert set(found[UNKNOWN.key]) == {"unsupported"}
    [cost] = store.costs(result.board)[HUGE.key]
    assert cost.time_s is None
    assert cost.reasons["time_s"].startswith("out_of_memory: ")
    assert benched(store).campaign is None, "failures are not pending"
    heard = Heard()
    benched(store, heard, retry=True)
    assert {v.configuration for v in heard.visits} == {IMPOSSIBLE.key, HUGE.key, UNKNOWN.key}


def test_ctrl_c_keeps_visits_and_derives_their_costs(store: Store) -> None:
    store.save_workload(workload(CONV, RELU, TANH, SQUARE))
    heard = Heard(stop=3)
    with pytest.raises(KeyboardInterrupt):
        benched(store, heard)
    board = store.campaigns()[0].board.uuid
    assert [v.id for v in store.visits(board)] == [v.id for v in heard.visits]
    assert len(store.costs(board)) == 3
    rest = Heard()
    result = benched(store, rest)
    assert len(rest.visits) == 5
    assert set(costs(store, result).values()) == {2}


def heard_hosts(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, set[str]]]:
    """Let two workloads of a bench on the processor have host times, as if the host were no device.

    Return the number of visits before each moment, with the configurations (keys) that it saved.
    """
    store.save_workload(workload(CONV, RELU, TANH))
    lacking = [list(workload(*calls).calls) for calls in ((CONV, RELU), (TANH, RELU))]
    monkeypatch.setattr(run, "_without_host_times", lambda *_: lacking)
    monkeypatch.setattr(host_times, "BLOCK_S", 1e-9)
    monkeypatch.setattr(host_times, "FEW_CALLS", 1)
    saved: list[tuple[int, set[str]]] = []
    save = store.save_host_visits

    def noted(visits: Sequence[HostVisit]) -> None:
        made = len(store.visits(store.campaigns()[-1].board.uuid))
        saved.append((made, {visit.configuration for visit in visits}))
        save(visits)

    monkeypatch.setattr(store, "save_host_visits", noted)
    return saved


def test_host_times_are_taken_around_the_visits_a_whole_workload_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = heard_hosts(store, monkeypatch)
    result = benched(store, duplicates=0.0, rounds=2)
    groups = [{CONV.key, RELU.key}, {TANH.key, RELU.key}]
    assert [keys for _, keys in saved[:4]] == groups * 2, "the second moment after all first ones"
    assert [visits for visits, _ in saved[:4]] == [0, 0, 6, 6]
    costs_of = store.costs(result.board)
    assert all(costs_of[c.key][0].host_time_s for c in (CONV, RELU, TANH))
