"""Quiet time: the lowest tenth of blocks, chosen by their totals."""

from __future__ import annotations

import random
import statistics

import pytest

from opdb.derive.quiet import (
    LEAST_BLOCKS,
    QUIET_SHARE,
    host_slowdown,
    quiet_time_s,
    quiet_times_s,
    quietest,
)


@pytest.mark.parametrize(("blocks", "count"), [(1, 1), (10, 1), (11, 2), (50, 5), (70, 7)])
def test_a_tenth_of_the_blocks_counts_rounded_up(blocks: int, count: int) -> None:
    falling = [float(blocks - i) for i in range(blocks)]
    assert quietest(falling) == [blocks - 1 - i for i in range(count)], "lowest first"
    assert quiet_time_s(falling) == statistics.fmean(range(1, count + 1))


def test_no_block_is_no_quiet_time() -> None:
    with pytest.raises(ValueError, match="no block"):
        quiet_time_s([])


def test_blocks_are_ranked_by_their_totals_and_not_call_by_call() -> None:
    """The first call is at its fastest in another block than the second, and than the sum."""
    blocks = [[1.0, 9.0], [5.0, 1.0], [2.0, 3.0], *([6.0, 6.0] for _ in range(7))]
    assert quiet_times_s(blocks) == [2.0, 3.0]
    assert quiet_times_s([*blocks, [2.0, 2.0]]) == [2.0, 2.5], "two blocks of eleven"


def test_blocks_of_other_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        quiet_times_s([[1.0, 1.0], [1.0], *([9.0] for _ in range(9))])


def test_quiet_times_of_two_samples_agree_where_their_medians_do_not() -> None:
    """A host that is slow for most of one sample and for little of the other."""
    draw = random.Random(4)

    def sample(slow_share: float) -> list[list[float]]:
        blocks = []
        for _ in range(200):
            slow = 1.8 if draw.random() < slow_share else 1.0
            blocks.append([slow * call_s * draw.gauss(1, 0.01) for call_s in (1e-5, 3e-5, 2e-6)])
        return blocks

    quiet, busy = sample(0.1), sample(0.8)
    totals = [[sum(block) for block in blocks] for blocks in (quiet, busy)]
    assert statistics.median(totals[1]) / statistics.median(totals[0]) > 1.7
    assert sum(quiet_times_s(busy)) == pytest.approx(sum(quiet_times_s(quiet)), rel=0.01)
    assert quiet_time_s(totals[1]) == pytest.approx(sum(quiet_times_s(busy)))


def test_how_much_slower_a_host_was_than_in_its_quiet_tenth() -> None:
    blocks_s = [2.0] * 10 + [3.0] * 60 + [5.0] * 30
    found = host_slowdown(blocks_s)
    assert found is not None
    assert (found.median, found.low, found.high) == (1.5, 1.0, 2.5)
    assert round(QUIET_SHARE * len(blocks_s)) == 10


def test_of_few_blocks_no_slowdown_is_told() -> None:
    assert host_slowdown([1.0] * (LEAST_BLOCKS - 1)) is None
    assert host_slowdown([1.0] * LEAST_BLOCKS) is not None
