"""The order of measuring: what is asked is reached, cheaply, and nothing is in it for nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from opdb.plan.ranking import EPSILON, Demand, Step, rank


def demand(name: str, goal: float, **shares: float) -> Demand:
    return Demand(name, {key: (share,) for key, share in shares.items()}, (0.0,), goal)


def keys(steps: Sequence[Step]) -> list[str]:
    return [step.key for step in steps]


def covered(demand: Demand, taken: Sequence[str]) -> float:
    return min(
        have + sum(demand.shares[key][q] for key in taken if key in demand.shares)
        for q, have in enumerate(demand.have)
    )


ONES = dict.fromkeys("abcdefgh", 1.0)


def test_the_largest_share_comes_first_and_what_is_not_needed_never() -> None:
    found = rank([demand("one", 0.9, a=0.05, b=0.6, c=0.3, d=0.05)], ONES)
    assert keys(found) == ["b", "c"]


def test_what_serves_two_models_goes_before_what_serves_one() -> None:
    one, other = demand("one", 0.5, a=0.5, b=0.5), demand("other", 0.5, b=0.5, c=0.5)
    assert keys(rank([one, other], ONES)) == ["b"]


def test_what_is_cheap_goes_before_what_is_dear() -> None:
    one = demand("one", 0.5, a=0.5, b=0.5)
    assert keys(rank([one], {"a": 1.0, "b": 0.1})) == ["b"]


def test_each_quantity_is_to_reach_the_goal() -> None:
    shares = {"a": (0.9, 0.1), "b": (0.05, 0.85), "c": (0.05, 0.05)}
    found = rank([Demand("one", shares, (0.0, 0.0), 0.9)], ONES)
    assert sorted(keys(found)) == ["a", "b"]


def test_what_cannot_be_had_is_done_without() -> None:
    one = demand("one", 0.9, a=0.5, b=0.3, c=0.2)
    found = rank([one], {"a": 1.0, "b": 1.0})
    assert sorted(keys(found)) == ["a", "b"], "as far as it goes"


def test_pins_come_first_and_stay() -> None:
    one = demand("one", 0.5, a=0.9, b=0.1)
    found = rank([one], ONES, first=["h", "b", "nowhere"])
    assert keys(found) == ["h", "b", "a"]


@pytest.mark.parametrize("seed", range(6))
def test_goals_are_reached_without_a_step_too_many_and_cheaper_than_one_by_one(seed: int) -> None:
    """Random models that share operators, each with a few that carry most of it."""
    draw = random.Random(seed)
    names = [f"c{n}" for n in range(80)]
    seconds = {name: draw.uniform(0.1, 2.0) for name in names}
    demands = []
    for number in range(8):
        some = draw.sample(names, 25)
        weights = [(draw.paretovariate(1.0), draw.paretovariate(1.0)) for _ in some]
        wholes = [sum(w[q] for w in weights) for q in (0, 1)]
        shares = {
            key: (w[0] / wholes[0], w[1] / wholes[1]) for key, w in zip(some, weights, strict=True)
        }
        demands.append(Demand(f"m{number}", shares, (0.0, 0.0), 0.9))
    found = rank(demands, seconds)
    taken = keys(found)
    assert len(taken) == len(set(taken))
    for each in demands:
        assert covered(each, taken) >= each.goal - EPSILON
    for key in taken:
        rest = [other for other in taken if other != key]
        assert any(covered(each, rest) < each.goal - EPSILON for each in demands), key
    one_by_one = {key for each in demands for key in keys(rank([each], seconds))}
    assert sum(step.seconds for step in found) <= sum(seconds[key] for key in one_by_one) + 1e-9
    assert rank(demands, seconds) == found, "the same question has the same answer"
