"""Passes between measured ones: weights of rungs, rungs left out, what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from opdb.compose.growth import sizes_of
from opdb.compose.ladder import REACH, Ladder, between, weights
from opdb.records import Cost, Workload
from opdb.store import open_store
from tests import published

RUNGS = [(b, n) for b in (1, 8, 64) for n in (512, 2048, 8192)]


@pytest.mark.parametrize("at", [(8, 2048), (8, 1000), (3, 700), (64, 8192 * 3), (100, 200)])
def test_weights_give_what_is_linear_in_batch_and_length(at: tuple[int, int]) -> None:
    found = weights(RUNGS, at)
    assert found is not None
    assert math.isclose(sum(found.values()), 1)

    def value(batch: int, length: int) -> float:
        return 3 + 2 * batch + 0.5 * length + 0.1 * batch * length

    of_rungs = sum(share * value(*RUNGS[number]) for number, share in found.items())
    assert math.isclose(of_rungs, value(*at))


def test_what_lies_too_far_beyond_the_rungs_has_no_weights() -> None:
    assert weights(RUNGS, (8, int(8192 * REACH) + 1)) is None
    assert weights(RUNGS, (8, 127)) is None
    assert weights(RUNGS, (257, 2048)) is None
    assert weights([(8, 512), (8, 2048)], (4, 512)) is None  # one batch size tells of no other


@pytest.fixture(scope="module")
def steps() -> tuple[list[Workload], Mapping[str, Cost]]:
    """Decoding steps of Llama-3.2-1B, published: nine of batch and length, and their costs."""
    with open_store(str(published.database_of("nvidia-h200-generation"))) as store:
        found = store.workloads("llama-3.2-1b", phase="decode")
        [board] = [each.uuid for each in store.boards()]
        keys = {c.key for each in found for c in each.occurrences()}
        costs = {key: each[0] for key, each in store.costs(board, keys).items()}
    return found, costs


def total_s(workload: Workload, costs: Mapping[str, Cost]) -> float:
    times = ((n, costs[c.key].time_s) for c, n in workload.occurrences().items())
    return sum(n * time.mean for n, time in times if time is not None)


def test_a_rung_left_out_is_found_within_its_error(
    steps: tuple[Sequence[Workload], Mapping[str, Cost]],
) -> None:
    """By a line from 512 to 8,192 at 2,048: sums of calls are off by 2.1 % at most."""
    found, costs = steps
    for each in (e for e in found if sizes_of(e)["length"] == 2048):
        others = [e for e in found if sizes_of(e)["length"] != 2048]
        answer = between(others, costs, sizes_of(each))
        assert answer is not None
        workload, interpolated = answer
        assert workload.calls == each.calls
        joined = {**costs, **interpolated.costs}
        assert abs(total_s(workload, joined) / total_s(each, costs) - 1) < 0.022
        assert interpolated.errors == (0.05, 0.05)  # no rung can be left out of two


def test_errors_are_those_of_rungs_left_out(
    steps: tuple[Sequence[Workload], Mapping[str, Cost]],
) -> None:
    ladder = Ladder(*steps)
    assert ladder.errors((8, 2048)) == (0.0, 0.0)
    inside, beyond, other = (ladder.errors(at) for at in ((8, 1000), (8, 16_384), (16, 1000)))
    assert 0.01 < inside[0] < 0.02
    assert inside[0] < beyond[0] < 0.05
    assert other[0] > inside[0]


def test_a_measured_pass_is_itself(steps: tuple[Sequence[Workload], Mapping[str, Cost]]) -> None:
    found, costs = steps
    answer = between(found, costs, sizes_of(found[0]))
    assert answer is not None
    assert (answer[0], answer[1].costs) == (found[0], {})
    assert between(found, {}, sizes_of(found[0])) is None  # none of its calls was measured
