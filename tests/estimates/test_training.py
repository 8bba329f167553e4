"""Learning from the published costs of a real GPU, and what is said of calls that it never saw."""

from __future__ import annotations

import math

import pytest

from opdb.estimates.estimator import Estimator
from opdb.estimates.training import Example, train
from opdb.records import OTHER_KINDS, ROOFLINE_ALONE, Configuration
from opdb.store import Store, open_store
from tests.published import database

KINDS = ("relu", "add", "linear", "batch_norm", "flatten")


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    """What one board knows of some kinds; the models are those that ran there and use each."""
    with open_store(str(database())) as store:
        return _examples(store)


def _examples(store: Store) -> list[Example]:
    boards = (board.uuid for board in store.boards("nvidia-h200"))
    board = max(boards, key=lambda uuid: len(store.model_runs(board=uuid)))
    users: dict[str, set[str]] = {}
    for workload in store.workloads_by_key({r.workload for r in store.model_runs(board=board)}):
        for configuration in workload.occurrences():
            users.setdefault(configuration.key, set()).add(workload.name)
    costs = store.costs(board)
    return [
        Example(c, costs[c.key][0], frozenset(users.get(c.key, ())))
        for c in store.configurations(KINDS)
        if c.key in costs
    ]


def learned(examples: list[Example]) -> Estimator:
    return train(examples, device="nvidia-h200", board="some board", trained_at="2026-11-21")


@pytest.fixture(scope="module")
def estimator(examples: list[Example]) -> Estimator:
    return learned(examples)


def test_what_was_measured_is_estimated_as_measured(
    estimator: Estimator, examples: list[Example]
) -> None:
    asked = [e for e in examples if e.configuration.kind != "flatten" and e.cost.kernels]
    found = estimator.estimate(e.configuration for e in asked)
    assert not found.refused
    apart, inside = [], 0
    for example in asked:
        time, truth = found.costs[example.configuration.key].time_s, example.cost.time_s
        assert time.high is not None
        apart.append(abs(math.log(time.mean / truth.mean)))
        inside += time.low <= truth.mean <= time.high
    assert sorted(apart)[len(apart) // 2] < 0.05
    assert inside > 0.95 * len(asked)


@pytest.mark.slow
def test_a_model_that_was_left_out_is_estimated_within_its_intervals(
    examples: list[Example],
) -> None:
    left = {e.configuration: e for e in examples if e.models == {"bert_base"} and e.cost.kernels}
    rest = [e for e in examples if e.configuration not in left]
    found = learned(rest).estimate(left)
    assert len(found.costs) + len(found.refused) == len(left) > 20
    held = [(found.costs[c.key], e.cost) for c, e in left.items() if c.key in found.costs]
    assert len(held) > 0.7 * len(left)
    inside = [
        one.time_s.low <= other.time_s.mean <= one.time_s.high
        for one, other in held
        if one.time_s and other.time_s and one.time_s.low and one.time_s.high
    ]
    assert len(inside) == len(held) and sum(inside) >= 0.8 * len(inside)


def test_what_nothing_like_it_was_measured_is_flagged_or_refused(estimator: Estimator) -> None:
    spec = {"shape": [8, 8], "dtype": "float32"}
    wide = {"shape": [8, 8], "dtype": "float64"}
    weight = {**wide, "role": "weight"}
    asked = {
        Configuration("softmax", {"dim": 1}, {"input": spec}): OTHER_KINDS,
        Configuration("linear", {}, {"input": wide, "weight": weight}): ROOFLINE_ALONE,
        Configuration("relu", {}, {"input": spec}, pass_name="backward"): ROOFLINE_ALONE,
        Configuration("relu", {}, {"input": spec}, autocast="bfloat16"): ROOFLINE_ALONE,
        Configuration("sgd", {}, {"params": []}, pass_name="update"): "forward and backward",
        Configuration("convolve", {}, {"input": spec}): "no kind 'convolve'",
    }
    found = estimator.estimate(asked)
    for configuration, said in asked.items():
        if cost := found.costs.get(configuration.key):
            assert cost.flags == ("estimated", said)
        else:
            assert said in found.refused[configuration.key]
    assert len(found.refused) == 2
