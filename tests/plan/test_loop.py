"""A build benches and measures until its target holds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.session import detect
from opdb.harvest.passes import harvest
from opdb.plan.loop import Build, BuildModel, BuildRequest, build
from opdb.plan.survey import EPSILON, Demand, SurveyStep, rank
from opdb.records import Configuration
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from tests.bench.calls import HUGE, IMPOSSIBLE, RELU, workload
from tests.heard import Heard

MLP = ModelSpec("mlp", input_size=(16,))
REQUEST = BuildRequest(0.01)

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        yield opened


def built(store: Store, request: BuildRequest, *jobs: BuildModel) -> tuple[Build, Heard]:
    heard = Heard()
    for job in jobs:
        store.save_workload(job.workload)
    with heard.visiting(store):
        return build(store, jobs, request, "cpu", heard), heard


def test_failures_stop_nothing(store: Store) -> None:
    inputs = dict(IMPOSSIBLE.inputs)
    many = [Configuration("conv2d", {"dilation": [n, n]}, inputs) for n in range(2, 6)]
    bad, good = workload(*many, HUGE, name="bad"), workload(RELU, name="good")
    both = BuildModel(MLP, bad), BuildModel(MLP, good)
    found, heard = built(store, replace(REQUEST, target=1.0), *both)
    one, other = found.standings
    assert not one.left
    assert one.answer.prediction.coverage_time == 0
    assert not other.left
    assert other.answer.prediction.coverage_time == 1
    assert len(found.survey.failed) == len(many) + 1
    visits = len(heard.visits)
    again, heard = built(store, replace(REQUEST, target=1.0), *both)
    assert again.benched == 0 and heard.visits == [] and visits > len(many)


def test_a_run_of_this_board_is_not_repeated_one_of_another_does_not_count(store: Store) -> None:
    job = BuildModel(MLP, harvest(MLP))
    first, _ = built(store, REQUEST, job)
    second, _ = built(store, REQUEST, job)
    assert (first.runs, second.runs) == (1, 0)
    board = detect("cpu").board.uuid
    assert [c.board.uuid for c in store.campaigns()] == [board] * len(store.campaigns())
    assert second.standings[0].run == "ok"


# The order of measuring: what is asked is reached, cheaply, and nothing is in it for nothing


def demand(**shares: float) -> Demand:
    return Demand({key: (share,) for key, share in shares.items()}, (0.0,))


def keys(steps: Sequence[SurveyStep]) -> list[str]:
    return [step.key for step in steps]


def covered(demand: Demand, taken: Sequence[str]) -> float:
    return min(
        have + sum(demand.shares[key][q] for key in taken if key in demand.shares)
        for q, have in enumerate(demand.have)
    )


ONES = dict.fromkeys("abcdefgh", 1.0)


def test_the_largest_share_comes_first_and_what_is_not_needed_never() -> None:
    found = rank([demand(a=0.05, b=0.6, c=0.3, d=0.05)], 0.9, ONES)
    assert keys(found) == ["b", "c"]


def test_what_serves_two_models_goes_before_what_serves_one() -> None:
    one, other = demand(a=0.5, b=0.5), demand(b=0.5, c=0.5)
    assert keys(rank([one, other], 0.5, ONES)) == ["b"]


def test_pins_come_first_and_stay() -> None:
    one = demand(a=0.9, b=0.1)
    found = rank([one], 0.5, ONES, first=["h", "b", "nowhere"])
    assert keys(found) == ["h", "b", "a"]


@pytest.mark.parametrize("seed", range(6))
def test_goals_are_reached_without_a_step_too_many_and_cheaper_than_one_by_one(seed: int) -> None:
    """Random models that share operators, each with a few that carry most of it."""
    draw = random.Random(seed)
    names = [f"c{n}" for n in range(80)]
    seconds = {name: draw.uniform(0.1, 2.0) for name in names}
    demands = []
    for _ in range(8):
        some = draw.sample(names, 25)
        weights = [(draw.paretovariate(1.0), draw.paretovariate(1.0)) for _ in some]
        wholes = [sum(w[q] for w in weights) for q in (0, 1)]
        shares = {
            key: (w[0] / wholes[0], w[1] / wholes[1]) for key, w in zip(some, weights, strict=True)
        }
        demands.append(Demand(shares, (0.0, 0.0)))
    found = rank(demands, 0.9, seconds)
    taken = keys(found)
    assert len(taken) == len(set(taken))
    for each in demands:
        assert covered(each, taken) >= 0.9 - EPSILON
    for key in taken:
        rest = [other for other in taken if other != key]
        assert any(covered(each, rest) < 0.9 - EPSILON for each in demands), key
    one_by_one = {key for each in demands for key in keys(rank([each], 0.9, seconds))}
    assert sum(step.seconds for step in found) <= sum(seconds[key] for key in one_by_one) + 1e-9
    assert rank(demands, 0.9, seconds) == found, "the same question has the same answer"
