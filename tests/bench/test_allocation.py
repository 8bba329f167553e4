"""Further visits go where they narrow models' sums most for their device time."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import pytest

from opdb.bench.plan import MAX_ROUNDS, Sampled, Sum, sums_of, wanted
from opdb.derive.statistics import PooledSpread, half_width, visit_deviation
from opdb.store import open_store
from tests import published

SECONDS = dict.fromkeys("abcd", 0.3)


def a_sum(**deviations: float) -> Sum:
    """Return a sum of 1 J a configuration, each visited once, by the deviation of a visit."""
    sampled = {key: Sampled("relu", 1.0, sigma, 1) for key, sigma in deviations.items()}
    return Sum(dict.fromkeys(deviations, 1), sampled)


def left(sum_: Sum, visits: dict[str, int]) -> float:
    return math.fsum(sum_.variance(key, visits[key]) for key in sum_.counts)


def test_a_precise_sum_wants_no_further_visit_but_of_its_top_shares() -> None:
    counts = {"a": 1, **{f"b{n}": 1 for n in range(30)}}
    sampled = {key: Sampled("relu", 5.0 if key == "a" else 1.0, 1e-4, 1) for key in counts}
    found = wanted([Sum(counts, sampled)], 0.01, dict.fromkeys(counts, 0.3), 4)
    assert found.pop("a") == 2 and set(found.values()) == {1}


def test_the_least_device_time_is_found_among_all_ways_to_spend_it() -> None:
    """Of all numbers of visits that reach the precision, none takes noticeably less time."""
    sum_ = a_sum(a=0.2, b=0.05, c=0.1, d=0.01)
    seconds = {"a": 1.0, "b": 0.3, "c": 0.3, "d": 0.3}
    for precision in (0.08, 0.06, 0.05):
        found = wanted([sum_], precision, seconds, 6)
        allowed = (precision * sum_.value / 1.96) ** 2
        assert left(sum_, found) <= allowed
        ways = (
            dict(zip("abcd", each, strict=True))
            for each in itertools.product(range(2, 7), repeat=4)
        )
        best = min(
            sum(seconds[key] * v for key, v in way.items())
            for way in ways
            if left(sum_, way) <= allowed
        )
        assert sum(seconds[key] * v for key, v in found.items()) <= best + max(seconds.values())


def test_what_is_not_visited_here_is_in_the_sum_and_wants_nothing() -> None:
    sum_ = a_sum(a=0.5, b=0.01, c=0.01)
    assert wanted([sum_], 0.01, {"b": 0.3, "c": 0.3}, 4) == {"b": 2, "c": 2}
    alone = wanted([a_sum(b=0.01, c=0.01)], 0.007, SECONDS, 4)
    assert max(alone.values()) > 2, "they would want more, were they the whole sum"
    assert wanted([sum_], 0.007, {"b": 0.3, "c": 0.3}, 4) == {"b": 2, "c": 2}


def test_visits_for_one_sum_count_for_another() -> None:
    one, other = a_sum(a=0.1, b=0.1), a_sum(a=0.1, c=0.001)
    assert wanted([one, other], 0.08, SECONDS, 6) == wanted([other, one], 0.08, SECONDS, 6)
    both = wanted([one, other], 0.08, SECONDS, 6)
    assert both["a"] >= wanted([one], 0.08, SECONDS, 6)["a"] and both["c"] == 2


def test_the_deviation_of_a_visit_is_that_behind_the_interval() -> None:
    pooled = PooledSpread(0.01, 40.0)
    assert visit_deviation(half_width([2.0], pooled), 1) == pytest.approx(0.02)
    width = half_width([1.9, 2.1], pooled)
    own, prior = 2 * 0.1**2, 4 * 0.02**2
    assert visit_deviation(width, 2) == pytest.approx(math.sqrt((own + prior) / 5))
    assert visit_deviation(None, 1) is None


def test_how_a_kind_scattered_elsewhere_saves_second_visits() -> None:
    """A single visit is enough where its kind is known to be steady; own repeats count first."""
    with open_store(str(published.database()), create=False) as store:
        board = max(store.cost_counts().items(), key=lambda item: item[1])[0]
        costs = {key: found[0] for key, found in store.costs(board).items()}
        kinds = {c.key: c.kind for c in store.configurations()}
        repeated = store.repeated(published.DEVICE)
    once = next(c for c in costs.values() if kinds[c.configuration] == "conv2d" and c.energy_j)
    assert once.time_s is not None and once.energy_j is not None
    alone = replace(
        once,
        visits=1,
        time_s=replace(once.time_s, low=None, high=None),
        energy_j=replace(once.energy_j, low=None, high=None),
    )
    given = ({"w": {alone.configuration: 1}}, {alone.configuration: alone}, kinds)
    wholes = {"w": (1e3 * once.time_s.mean, 1e3 * once.energy_j.mean)}
    seconds = {alone.configuration: 0.3}
    assert wanted(sums_of(*given, wholes), 0.01, seconds, 4) == {alone.configuration: 2}
    assert wanted(sums_of(*given, wholes, repeated), 0.01, seconds, 4) == {alone.configuration: 1}
    others = [one for one in repeated if one.kind != "conv2d"]
    assert wanted(sums_of(*given, wholes, others), 0.01, seconds, 4) == {alone.configuration: 2}
    for each in sums_of(*given, wholes, repeated):
        [sampled] = each.sampled.values()
        assert sampled.deviation is not None and 0 < sampled.deviation < 0.02 * sampled.value


def test_published_models_are_precise_after_a_third_of_a_further_visit_each() -> None:
    """Had each operator of a published board been visited once, where the rule was twice."""
    with open_store(str(published.database()), create=False) as store:
        board = max(store.cost_counts().items(), key=lambda item: item[1])[0]
        costs = {key: found[0] for key, found in store.costs(board).items()}
        kinds = {c.key: c.kind for c in store.configurations()}
        calls = store.calls_of(list(costs), published.DEVICE)
    once = [
        Sum(each.counts, {k: replace(one, visits=1) for k, one in each.sampled.items()})
        for each in sums_of(calls, costs, kinds)
    ]
    assert len(once) == 2 * len(calls) > 20
    found = wanted(once, 0.01, dict.fromkeys(costs, 0.3), MAX_ROUNDS)
    assert 1 < statistics.fmean(found.values()) < 4 / 3
    for each in once:
        within = left(each, found) <= (0.01 * each.value / 1.96) ** 2 * (1 + 1e-9)
        most = all(
            found[key] == MAX_ROUNDS
            for key in each.counts
            if (each.sampled[key].deviation or 0) > 0
        )
        assert within or most
