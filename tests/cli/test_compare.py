"""`opdb compare`: two sides of every sort, checks, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import opdb
import opdb as api
from opdb.commands.compare import Comparison, PassDifference, QuantityChange
from opdb.predict.figures import Amount, Change
from tests import published
from tests.cli.conftest import Opdb


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


@pytest.mark.parametrize("first", [0, 1])
def test_both_sides_are_of_one_board_where_one_measured_both(
    opdb: Opdb, db: str, first: int
) -> None:
    """Predicted alone each is of the board that ran it; their difference was that of two boards."""
    models = ["resnet50", "resnet152"][:: -1 if first else 1]
    alone = [api.predict(each, batch_size=32, mode="graph", db=db).prediction for each in models]
    assert alone[0].board != alone[1].board
    ran = opdb("compare", *models, "-b", 32, "--mode", "graph", "--db", db, "--json")
    found = json.loads(ran.out)
    [board] = {row["board"] for row in found["rows"]}
    assert board in {each.board for each in alone}
    for row, model in zip(found["rows"], models, strict=True):
        own = api.predict(
            model, batch_size=32, mode="graph", db=db, conditions=api.Conditions(board=board)
        )
        assert row["energy_j"]["value"] == own.energy_j


def test_within_is_a_check_of_what_got_worse(opdb: Opdb, db: str) -> None:
    command = ("compare", "resnet50", "-b", 1, "--db", db, "--within", 0.2, "--mode")
    assert opdb(*command, "eager", "graph").status == 0
    ran = opdb(*command, "graph", "eager")
    assert ran.status == 1
    assert "more than --within 0.2 worse" in ran.err
    assert "time of a sample is 3.8" in ran.err and "energy of a sample is 2.4" in ran.err


def amount(value: float, below: float = 0.1, above: float = 0.1) -> Amount:
    return Amount(value, (value * math.exp(-below), value * math.exp(above)))


def test_a_change_moved_where_it_is_larger_than_both_intervals_together() -> None:
    joint = math.hypot(0.1, 0.1)
    just_less = Change(amount(1), amount(math.exp(0.99 * joint)))
    just_more = Change(amount(1), amount(math.exp(1.01 * joint)))
    assert just_less.intervals == pytest.approx(0.99) and just_less.moved is False
    assert just_more.intervals == pytest.approx(1.01) and just_more.moved is True
    assert just_more.difference == pytest.approx(math.exp(1.01 * joint) - 1)


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
    found = PassDifference("a", "b", (), (), [QuantityChange("time", "s", change)])
    assert found.regressions(0.1) == worse


def difference(found: Comparison) -> PassDifference:
    [only] = found.differences
    return only


@pytest.mark.parametrize(
    "asked",
    [
        {"models": ["resnet50", "resnet18"], "modes": ["graph"], "batch_sizes": [32]},
        {"models": ["resnet50"], "batch_sizes": [1, 32]},
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


def test_models_modes_and_batch_sizes_come_in_one_table(opdb: Opdb, h200: Path) -> None:
    several = ("resnet18", "resnet50", "--mode", "eager", "graph", "--batch-sizes", 1, 32)
    ran = opdb("predict", *several, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found["failures"] == []
    assert [(row["model"], row["mode"], row["batch_size"]) for row in found["rows"]] == [
        (model, mode, size)
        for model in ("resnet18", "resnet50")
        for mode in ("eager", "graph")
        for size in (1, 32)
    ]
    alone = opdb("predict", "resnet50", "--mode", "graph", "-b", 32, "--json")
    assert json.loads(alone.out) == found["rows"][-1]
    shown = opdb("predict", *several).out
    assert shown.count("resnet18") == shown.count("resnet50") == 4
    for column in ("model", "mode", "time", "throughput", "energy, 1 sample", "coverage"):
        assert column in shown
    assert "rent" not in shown
    assert "rent" in opdb("predict", *several, "--price", 2).out
