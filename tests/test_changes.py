"""What counts as moved, on made-up quantities, and sums of operators on the published set."""

from __future__ import annotations

import math
from typing import Any

import pytest

import opdb
from opdb.commands.compare import Comparison, Difference, Quantity
from opdb.predict.figures import Amount, Change
from tests import published


def amount(value: float, below: float = 0.1, above: float = 0.1) -> Amount:
    return Amount(value, (value * math.exp(-below), value * math.exp(above)))


def test_a_change_moved_where_it_is_larger_than_both_intervals_together() -> None:
    joint = math.hypot(0.1, 0.1)
    just_less = Change(amount(1), amount(math.exp(0.99 * joint)))
    just_more = Change(amount(1), amount(math.exp(1.01 * joint)))
    assert just_less.intervals == pytest.approx(0.99) and just_less.moved is False
    assert just_more.intervals == pytest.approx(1.01) and just_more.moved is True
    assert just_more.difference == pytest.approx(math.exp(1.01 * joint) - 1)


def test_the_ends_that_face_each_other_count() -> None:
    slower = Change(amount(1, 9, 0.1), amount(2, 0.2, 9))
    faster = Change(amount(2, 0.2, 9), amount(1, 9, 0.1))
    assert slower.intervals == pytest.approx(math.log(2) / math.hypot(0.1, 0.2))
    assert faster.intervals == slower.intervals and faster.ratio == 0.5


def test_what_is_the_same_did_not_move_and_what_is_unknown_is_not_said_to() -> None:
    assert Change(Amount(3), Amount(3)).moved is False
    assert Change(Amount(3), Amount(3)).intervals == 0
    for change in (
        Change(None, amount(1)),
        Change(amount(1), None),
        Change(Amount(1), amount(2)),
        Change(amount(1), Amount(2)),
        Change(amount(1), Amount(-1, (-2, 3))),
    ):
        assert change.moved is None and change.intervals is None
    without_width = Change(amount(1, 0, 0), amount(2, 0, 0))
    assert without_width.moved is True and without_width.intervals is None


@pytest.mark.parametrize(
    ("change", "worse"),
    [
        (Change(amount(1), amount(1.5)), ["time is 1.500 times as large"]),
        (Change(amount(1.5), amount(1)), []),
        (Change(amount(1), amount(1.05)), []),
        (Change(amount(1, 1, 1), amount(1.5)), []),
        (Change(Amount(1), Amount(1.5)), ["time is 1.500 times as large (no interval)"]),
    ],
)
def test_a_regression_is_larger_than_the_share_and_than_the_intervals(
    change: Change, worse: list[str]
) -> None:
    found = Difference("a", "b", (), (), [Quantity("time", "s", change)])
    assert found.regressions(0.1) == worse


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


def difference(found: Comparison) -> Difference:
    [only] = found.differences
    return only


@pytest.mark.parametrize(
    "asked",
    [
        {"models": ["resnet50"], "modes": ["eager", "graph"], "batch_sizes": [1]},
        {"models": ["resnet50", "resnet18"], "modes": ["graph"], "batch_sizes": [32]},
        {"models": ["resnet50"], "batch_sizes": [1, 32]},
        {"models": ["resnet50"], "batch_sizes": [32], "dtypes": ["fp32", "bf16"]},
        {"models": ["vgg16"], "modes": ["graph"], "boards": ["c1e7", "0e7b"]},
        {"models": ["resnet50"], "batch_sizes": [32], "algorithms": ["gemm", "implicit gemm"]},
    ],
    ids=lambda asked: " ".join(map(str, asked)),
)
def test_the_operators_add_up_to_what_moved(asked: dict[str, Any], db: str) -> None:
    path = str(published.all_sets()) if "algorithms" in asked else db
    found = opdb.compare(*asked.pop("models"), db=path, **asked)
    found.check()
    one, (before, after) = difference(found), found.predicted
    samples = [each.figures.samples if one.by_sample else 1 for each in (before, after)]
    for side, place in ((before, 0), (after, 1)):
        times = [(row.time_s.before, row.time_s.after)[place] for row in one.operators]
        energies = [(row.energy_j.before, row.energy_j.after)[place] for row in one.operators]
        assert side.time_s is not None and side.energy_j is not None
        whole_s, whole_j = side.time_s / samples[place], side.energy_j / samples[place]
        assert sum(each.value for each in times if each) == pytest.approx(whole_s, rel=1e-9)
        assert sum(each.value for each in energies if each) == pytest.approx(whole_j, rel=1e-9)
        calls = sum(row.calls[place] for row in one.operators)
        assert side.schedule is not None and calls == len(side.schedule.slots)


@pytest.mark.slow
def test_a_database_against_itself_moved_nothing(db: str) -> None:
    found = opdb.compare(against=db, db=db)
    one = difference(found)
    assert len(one.operators) > 7000 and one.only == (0, 0)
    assert not any(row.time_s.moved or row.energy_j.moved for row in one.operators)
    assert "nothing moved" in str(found)
    found.check_within(0)
    of_model = opdb.compare("resnet50", against=db, db=db)
    one = difference(of_model)
    assert "nothing moved" in str(of_model)
    assert not any(each.change.moved for each in (*one.quantities, *one.judged))
    assert not any(row.time_s.difference for row in one.operators)
