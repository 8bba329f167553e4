"""Host times in blocks of rounds: kept are the two in which nothing held the host up."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from opdb.bench.host import (
    BLOCK_S,
    BLOCKS,
    MAX_BLOCKS,
    ROUNDS,
    STEADY,
    _times_in_random_order,
    calm_times,
)
from opdb.operators import build
from opdb.records import Configuration

CALLS_S = (1e-5, 3e-5, 2e-6)


def blocks(*slowness: float) -> Iterator[list[list[float]]]:
    """Blocks of three calls and four rounds, each call as many times as slow."""
    for factor in slowness:
        yield [[call_s * factor * (1 + 0.01 * i) for i in range(4)] for call_s in CALLS_S]


def test_two_blocks_are_enough_where_they_agree() -> None:
    made = blocks(1.0, 1.05, 0.5)
    times, apart = calm_times(lambda: next(made))
    assert [len(each) for each in times] == [4 * BLOCKS] * 3
    assert times[0][:4] == next(blocks(1.0))[0]
    assert apart == pytest.approx(0.05)
    assert len(list(made)) == 1, "no third was made"


def test_a_block_in_which_the_host_was_held_up_is_left_out() -> None:
    made = blocks(1.9, 1.0, 2.6, 1.02)
    times, apart = calm_times(lambda: next(made))
    assert max(times[1]) < 1.1 * CALLS_S[1]
    assert apart == pytest.approx(0.02)


def test_a_host_that_is_never_steady_is_told() -> None:
    made = blocks(*(1.0 + 0.3 * i for i in range(MAX_BLOCKS)))
    times, apart = calm_times(lambda: next(made))
    assert apart == pytest.approx(0.3) and apart > STEADY
    assert max(times[0]) < 1.4 * CALLS_S[0], "the two fastest were kept"
    assert not list(made)


def test_a_block_of_few_calls_lasts_long_enough_to_tell_of_more_than_a_moment() -> None:
    tensor = {"shape": [4], "dtype": "float32"}
    calls = [build(Configuration(kind, {}, {"input": tensor})) for kind in ("relu", "sigmoid")]
    start_s = time.perf_counter()
    times = _times_in_random_order(calls, random.Random(1).shuffle, on_gpu=False)
    assert time.perf_counter() - start_s > 0.5 * BLOCK_S
    assert [len(each) for each in times] == [ROUNDS] * 2
    assert min(map(min, times)) > 0 and sum(map(sum, times)) < 0.5 * BLOCK_S
