"""Runs that wait for the host: their time is the quiet time of their passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opdb.derive.quiet import BLOCK_S, LEAST_BLOCKS, blocks_s
from opdb.derive.runs import QUIET_BLOCKS, run_blocks_s, run_cost
from opdb.records import ModelRun, Stretch
from tests.store import samples

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


def test_a_runs_time_is_quiet_and_its_median_that_of_all_blocks() -> None:
    cost = run_cost([run(2.0, 2.0, 2.0)])
    assert cost is not None and cost.slowdown is not None
    assert cost.time_s.mean == pytest.approx(PASS_S)
    assert cost.time_s.median == pytest.approx(2 * PASS_S)
    assert cost.slowdown.median == pytest.approx(2.0)
    assert "2.00 times as long as in quiet moments" in cost.slowdown.words
    older = run_cost([replace(run(2.0, 2.0, 2.0), facts={})])
    assert older is not None and older.slowdown is None
    assert older.time_s.mean == pytest.approx(1.8 * PASS_S)


def test_the_energy_of_a_quiet_pass_lacks_base_power_over_the_time_that_it_is_shorter() -> None:
    cost = run_cost([run(2.0, 2.0, 2.0)], base_power_w=120.0)
    assert cost is not None and cost.energy_j is not None
    calm_s = 1.8 * PASS_S
    assert cost.energy_j.mean == pytest.approx(200 * calm_s - 120 * (calm_s - PASS_S))
    assert cost.power_w == pytest.approx(cost.energy_j.mean / PASS_S)
    unknown = run_cost([run(2.0, 2.0, 2.0)])
    assert unknown is not None and unknown.energy_j is not None
    assert unknown.energy_j.mean == pytest.approx(200 * calm_s)


def test_blocks_of_all_runs_count_together_and_all_must_have_them() -> None:
    slow, quiet = run(2.0, 2.0), run(1.0, 1.0)
    both = run_cost([slow, quiet])
    assert both is not None and both.slowdown is not None
    assert both.time_s.count == 120 and both.time_s.mean == pytest.approx(PASS_S)
    mixed = run_cost([slow, replace(quiet, facts={})])
    assert mixed is not None and mixed.slowdown is None
    assert run_blocks_s([slow, replace(quiet, facts={})]) == []


def test_a_run_of_few_blocks_has_no_quiet_time() -> None:
    few = run_cost([run(2.0, blocks=LEAST_BLOCKS - 1)])
    assert few is not None and few.slowdown is None
    enough = run_cost([run(2.0, blocks=LEAST_BLOCKS)])
    assert enough is not None and enough.slowdown is not None
