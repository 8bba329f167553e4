"""Quiet time: the lowest tenth of blocks, chosen by their totals."""

from __future__ import annotations

import random
import statistics

import pytest

from opdb.derive.costs import host_quantities
from opdb.derive.quiet import (
    LEAST_BLOCKS,
    QUIET_SHARE,
    host_slowdown,
    host_slowdown_in,
    quiet_rounds_s,
    quiet_time_s,
    quiet_times_s,
    quietest,
)
from opdb.records import HostVisit


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


def test_the_range_of_a_slowdown_is_from_the_5th_to_the_95th_percentile() -> None:
    found = host_slowdown([float(n) for n in range(101)])
    assert found is not None
    quiet = statistics.fmean(range(11))
    assert (found.low, found.median, found.high) == (5 / quiet, 50 / quiet, 95 / quiet)


def test_of_few_blocks_no_slowdown_is_told() -> None:
    assert host_slowdown([1.0] * (LEAST_BLOCKS - 1)) is None
    assert host_slowdown([1.0] * LEAST_BLOCKS) is not None


def moment(
    at: str, times: dict[str, list[float]], campaign: str = "a", form: str = "module"
) -> list[HostVisit]:
    """One moment of a group: rounds of as many calls as `times` has configurations."""
    return [
        HostVisit(f"{at} {key}", campaign, key, form, at, tuple(seconds))  # type: ignore[arg-type]
        for key, seconds in times.items()
    ]


def test_a_calls_quiet_time_is_that_of_its_groups_quietest_rounds() -> None:
    """In round 7 the group is quiet; call x alone is faster in round 3, y in round 4."""
    x, y = [5e-6] * 50, [9e-6] * 50
    for quiet in range(7, 12):
        x[quiet], y[quiet] = 4e-6, 6e-6
    x[3], y[3], x[4], y[4] = 1e-6, 20e-6, 20e-6, 1e-6
    found = host_quantities(moment("t", {"x": x, "y": y}))
    assert found["x"]["module"].mean == pytest.approx(4e-6)
    assert found["y"]["module"].mean == pytest.approx(6e-6)
    assert found["y"]["module"].median == 9e-6, "of all rounds"
    assert found["y"]["module"].count == 50


def test_moments_of_one_group_are_one_sample_and_campaigns_are_not() -> None:
    slow, quiet = {"x": [4e-6] * 50, "y": [2e-6] * 50}, {"x": [3e-6] * 50, "y": [1e-6] * 50}
    together = quiet_rounds_s([*moment("t1", slow), *moment("t2", quiet)])
    assert together == {(key, "module"): [tuple(quiet[key][:10])] for key in quiet}
    apart = quiet_rounds_s([*moment("t1", slow), *moment("t1", quiet, campaign="b")])
    assert apart["x", "module"] == [(4e-6,) * 5, (3e-6,) * 5]
    others = quiet_rounds_s([*moment("t1", slow), *moment("t2", {"x": quiet["x"]})])
    assert others["x", "module"] == [(4e-6,) * 5, (3e-6,) * 5], "another group"


def test_of_a_calls_groups_those_much_slower_than_the_quietest_do_not_count() -> None:
    groups = [{"x": [s] * 50, key: [1e-6] * 50} for s, key in ((4e-6, "a"), (4.4e-6, "b"))]
    late = {"x": [5e-6] * 50, "c": [1e-6] * 50}
    visits = [v for n, group in enumerate([*groups, late]) for v in moment(f"t{n}", group)]
    assert host_quantities(visits)["x"]["module"].mean == pytest.approx(4.2e-6)


def test_visits_of_few_rounds_count_where_there_is_no_quiet_time() -> None:
    few = moment("t1", {"x": [3e-6] * 39 + [1e-6], "y": [2e-6] * 40})
    assert quiet_rounds_s(few) == {}
    assert host_quantities(few)["x"]["module"].mean == pytest.approx(3e-6)
    many = moment("t2", {"x": [5e-6] * LEAST_BLOCKS})
    found = host_quantities([*few, *many])
    assert found["x"]["module"].mean == found["x"]["module"].median == 5e-6
    assert found["y"]["module"].mean == pytest.approx(2e-6)


def test_a_call_that_takes_no_time_has_no_quantity() -> None:
    assert "x" not in host_quantities(moment("t", {"x": [0.0] * 50, "y": [1e-6] * 50}))


def test_how_slow_a_host_was_is_told_of_all_groups_each_by_its_own_quiet_time() -> None:
    """A group of short calls and one of long ones, each as slow as the other."""
    slower = [1.0] * 5 + [1.5] * 35 + [2.0] * 10
    short, long = (
        {"x": [s * n for n in slower], "y": [s * n for n in slower]} for s in (1e-6, 1e-4)
    )
    found = host_slowdown_in([*moment("t1", short), *moment("t2", {"z": long["x"], **long})])
    assert found is not None
    assert (found.median, found.low, found.high) == pytest.approx((1.5, 1.0, 2.0))
    assert host_slowdown_in([]) is None
