"""Calls, the Python around them and passes on a CPU; the mechanics alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.python_around import GROUPS, Pairs, Row, asked, errors_of
from opdb.derive.quiet import QUIET_SHARE
from opdb.models import load


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return Pairs.of("vit_of_torchvision")


def test_rounds_and_passes_of_a_model_are_taken_in_pairs(pairs: Pairs) -> None:
    pairs.take()
    assert len(pairs.rounds_s) == len(pairs.passes_s) == 1
    assert 0 < pairs.rounds_s[0] < 1 and 0 < pairs.passes_s[0] < 1
    assert pairs.workload.around is not None


def test_the_pairs_of_lowest_totals_are_added_up(pairs: Pairs) -> None:
    count = round(1 / QUIET_SHARE)
    seen = replace(
        pairs,
        workload=replace(pairs.workload, containers=10, around=30.0),
        rounds_s=[6e-4] + [1e-4] * (count - 1),
        passes_s=[10e-4] + [90e-4] * (count - 1),
    )
    row = seen.row(1e-5)
    assert row.pairs == count and row.pass_s == pytest.approx(10e-4)
    assert (row.calls, row.before, row.after) == pytest.approx((0.6, 0.7, 0.9))


def test_errors_are_those_before_and_after() -> None:
    rows = [Row("a", 1, 1e-3, 0.5, 0.6, 0.9), Row("b", 1, 1e-3, 0.5, 0.8, 1.1)]
    before, after = errors_of(rows, "all")
    assert (before.ratio, after.ratio) == ("all: before", "all: after")
    assert (before.median, before.largest, before.bias) == pytest.approx((0.3, 0.4, -0.3))
    assert (after.median, after.largest, after.bias) == pytest.approx((0.1, 0.1, 0.0))


@pytest.mark.parametrize("model", [m for models in GROUPS.values() for m in models])
def test_every_model_can_be_made(model: str) -> None:
    assert load(asked(model), device="meta").args
