"""Quiet times of calls, of runs, and of one host against another."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

from opdb.derive.costs import host_quantities
from opdb.derive.quiet import (
    BLOCK_S,
    LEAST_BLOCKS,
    QUIET_SHARE,
    blocks_s,
    host_slowdown,
    is_settled,
    quiet_rounds_s,
    quiet_time_s,
    quietest,
)
from opdb.derive.runs import QUIET_BLOCKS, run_blocks_s, run_cost
from opdb.records import Call, HostVisit, ModelRun, Stretch
from tests.store import samples


@pytest.mark.parametrize(("blocks", "count"), [(1, 1), (10, 1), (11, 2), (50, 5), (70, 7)])
def test_a_tenth_of_the_blocks_counts_rounded_up(blocks: int, count: int) -> None:
    falling = [float(blocks - i) for i in range(blocks)]
    assert quietest(falling) == [blocks - 1 - i for i in range(count)], "lowest first"
    assert quiet_time_s(falling) == statistics.fmean(range(1, count + 1))


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
    assert quiet_time_s(totals[1]) == pytest.approx(quiet_time_s(totals[0]), rel=0.01)


def test_how_much_slower_a_host_was_than_in_its_quiet_tenth() -> None:
    blocks = [2.0] * 10 + [3.0] * 60 + [5.0] * 30
    found = host_slowdown(blocks)
    assert found == 1.5
    assert round(QUIET_SHARE * len(blocks)) == 10
    assert host_slowdown([1.0] * (LEAST_BLOCKS - 1)) is None
    assert host_slowdown([1.0] * LEAST_BLOCKS) == 1.0


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


def test_of_a_calls_groups_those_much_slower_than_the_quietest_do_not_count() -> None:
    groups = [{"x": [s] * 50, key: [1e-6] * 50} for s, key in ((4e-6, "a"), (4.4e-6, "b"))]
    late = {"x": [5e-6] * 50, "c": [1e-6] * 50}
    visits = [v for n, group in enumerate([*groups, late]) for v in moment(f"t{n}", group)]
    assert host_quantities(visits)["x"]["module"].mean == pytest.approx(4.2e-6)


def test_moments_of_one_group_are_one_sample_and_campaigns_are_not() -> None:
    slow, quiet = {"x": [4e-6] * 50, "y": [2e-6] * 50}, {"x": [3e-6] * 50, "y": [1e-6] * 50}
    together = quiet_rounds_s([*moment("t1", slow), *moment("t2", quiet)])
    assert together == {(key, "module"): [tuple(quiet[key][:10])] for key in quiet}
    apart = quiet_rounds_s([*moment("t1", slow), *moment("t1", quiet, campaign="b")])
    assert apart["x", "module"] == [(4e-6,) * 5, (3e-6,) * 5]
    others = quiet_rounds_s([*moment("t1", slow), *moment("t2", {"x": quiet["x"]})])
    assert others["x", "module"] == [(4e-6,) * 5, (3e-6,) * 5], "another group"


def test_visits_of_few_rounds_count_where_there_is_no_quiet_time() -> None:
    few = moment("t1", {"x": [3e-6] * 39 + [1e-6], "y": [2e-6] * 40})
    assert quiet_rounds_s(few) == {}
    assert host_quantities(few)["x"]["module"].mean == pytest.approx(3e-6)
    many = moment("t2", {"x": [5e-6] * LEAST_BLOCKS, "z": [0.0] * LEAST_BLOCKS})
    found = host_quantities([*few, *many])
    assert found["x"]["module"].mean == found["x"]["module"].median == 5e-6
    assert found["y"]["module"].mean == pytest.approx(2e-6)
    assert "z" not in found, "it takes no time"


PASS_S = BLOCK_S


def run(*slowness: float, blocks: int = 30, **facts: Any) -> ModelRun:
    """A run at 200 W whose repeats each take so many times as long; a fifth of each is quiet."""
    repeats = tuple(
        Stretch(
            calls_per_replay=1,
            replay_times_s=(PASS_S,) * (blocks // 5) + (PASS_S * factor,) * (blocks - blocks // 5),
            duration_s=1.0,
            busy_share=1.0,
            power_samples=((0.1, 200.0), (0.3, 200.0), (0.5, 200.0)),
        )
        for factor in slowness
    )
    made = samples.model_run(samples.workload())
    return replace(made, repeats=repeats, facts={QUIET_BLOCKS: 1, **facts})


def test_passes_are_joined_until_they_last_as_long_as_a_block() -> None:
    assert blocks_s([0.008, 0.008, 0.008, 0.02, 0.03, 0.01]) == pytest.approx([0.008, 0.02, 0.03])
    assert blocks_s([0.005] * 11) == pytest.approx([0.005] * 2), "three are left over"
    assert blocks_s([]) == []


def test_blocks_of_all_runs_count_together_and_all_must_have_them() -> None:
    slow, quiet = run(2.0, 2.0), run(1.0, 1.0)
    both = run_cost([slow, quiet])
    assert both.slowdown is not None
    assert both.time_s.count == 120 and both.time_s.mean == pytest.approx(PASS_S)
    assert run_cost([slow, replace(quiet, facts={})]).slowdown is None
    assert run_blocks_s([slow, replace(quiet, facts={})]) == []
    for blocks, told in ((LEAST_BLOCKS - 1, False), (LEAST_BLOCKS, True)):
        assert (run_cost([run(2.0, blocks=blocks)]).slowdown is not None) == told


def test_a_runs_time_is_quiet_and_its_median_that_of_all_blocks() -> None:
    cost = run_cost([run(2.0, 2.0, 2.0)])
    assert cost.time_s.mean == pytest.approx(PASS_S)
    assert cost.time_s.median == pytest.approx(2 * PASS_S)
    assert cost.slowdown == pytest.approx(2.0)
    older = run_cost([replace(run(2.0, 2.0, 2.0), facts={})])
    assert older.slowdown is None
    assert older.time_s.mean == pytest.approx(1.8 * PASS_S)


def test_the_energy_of_a_quiet_pass_lacks_base_power_over_the_time_that_it_is_shorter() -> None:
    cost = run_cost([run(2.0, 2.0, 2.0)], base_power_w=120.0)
    calm_s = 1.8 * PASS_S
    assert cost.energy_j.mean == pytest.approx(200 * calm_s - 120 * (calm_s - PASS_S))
    assert cost.power_w == pytest.approx(cost.energy_j.mean / PASS_S)
    unknown = run_cost([run(2.0, 2.0, 2.0)])
    assert unknown.energy_j.mean == pytest.approx(200 * calm_s)


def calls(count: int) -> list[Call]:
    """Calls of so many configurations."""
    configurations = [replace(samples.RELU, parameters={"number": n}) for n in range(count)]
    return [Call(configuration, "module") for configuration in configurations]


def moments(of: list[Call], *slowness: float) -> list[HostVisit]:
    return [
        HostVisit(
            f"{n}", "a-campaign", call.configuration.key, call.form, f"t{n}", (1e-5 * factor,)
        )
        for n, factor in enumerate(slowness)
        for call in of
    ]


@pytest.mark.parametrize(
    ("slowness", "settled"),
    [((1.0, 1.1), True), ((1.0, 1.3), False), ((1.3, 1.0, 1.05), True), ((1.3, 1.0, 1.31), False)],
)
def test_a_host_is_settled_where_its_two_fastest_moments_agree(
    slowness: tuple[float, ...], settled: bool
) -> None:
    made = calls(9)
    assert is_settled(moments(made, *slowness), made) is settled


def test_calls_that_were_timed_once_cannot_disagree() -> None:
    made, others = calls(9), calls(18)[9:]
    assert is_settled(moments(made, 1.0), made)
    assert is_settled(moments(others, 1.0, 2.0), made), "what other calls took is nothing to these"
    assert is_settled(moments(made, 0.0, 2.0), made), "nothing can be said of a time of 0"


def test_most_calls_decide_each_by_the_median_of_its_times() -> None:
    made = calls(3)
    steady, uneven = moments(made[:2], 1.0, 1.1), moments(made[2:], 1.0, 9.0)
    assert is_settled([*steady, *uneven], made)
    assert not is_settled([*steady[::2], *moments(made[:2], 1.0, 1.4)[:2], *uneven], made[2:])
    skewed = [replace(visit, times_s=(*visit.times_s * 2, 9.0)) for visit in steady]
    assert is_settled(skewed, made[:2])
    other_form = [replace(visit, form="function") for visit in moments(made, 5.0)]
    assert is_settled([*moments(made, 1.0), *other_form], made)
