"""Predictions for other hosts held against passes measured here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.host_factor import MODELS, Predicted, predicted, rows_of, stored, summary
from opdb.predict import CalibratedHost, predictor_for
from opdb.records import CalibratedCall
from opdb.store import open_store
from tests import published
from tests.store import samples

BEFORE = {
    ("a", "b1"): Predicted("a", "b1", 1.25, 4e-3, 5e-3),
    ("a", "b2"): Predicted("a", "b2", 0.5, 8e-3, 4e-3),
    ("c", "b1"): Predicted("c", "b1", 1.25, 2e-3, 2.5e-3),
    ("d", "b1"): Predicted("d", "b1", 1.25, 2e-3, 2.5e-3),
}
AFTER = {place: replace(each, factor=2.0, on_host_s=6e-3) for place, each in BEFORE.items()}
MEASURED = {"a": (5e-3, 1.2), "c": (2e-3, None)}


def test_each_pair_of_a_model_that_was_measured_is_a_row() -> None:
    rows = rows_of(BEFORE, AFTER, MEASURED, ["a"])
    assert [(row.model, row.board, row.timed, row.slower) for row in rows] == [
        ("a", "b1", True, 1.2),
        ("a", "b2", True, 1.2),
        ("c", "b1", False, None),
    ]
    assert (rows[0].without, rows[0].before, rows[0].after) == pytest.approx((0.8, 1.0, 1.2))
    found = summary(rows)
    assert found["all, without"]["median_percent"] == pytest.approx(25)
    assert found["all, without"]["largest_percent"] == pytest.approx(60)
    assert found["not timed, before"] == pytest.approx(
        {"pairs": 1, "median_percent": 25, "largest_percent": 25}
    )
    assert summary([]) == {}


def test_passes_are_predicted_for_each_board_that_was_timed_in_all_of_their_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host is the one of a board: its own factor is 1."""
    with open_store(str(published.copy_to(tmp_path / "copy.sqlite"))) as store:
        workloads = stored(store, ["resnet18", "resnet50", "nonesuch"])
        assert "left out: nonesuch: " in capsys.readouterr().out
        predictor = predictor_for(store)
        board = predictor.answer(workloads[0], "eager").prediction.board
        costs = predictor.costs_on(board, list(workloads[1].occurrences()))
        calls = {(call.configuration.key, call.form) for call in workloads[1].calls}
        host = replace(
            samples.host_calibration(),
            workloads=(workloads[1].key,),
            calls=tuple(
                CalibratedCall(key, form, "t", (costs[key].host_time_s[form].mean,) * 50)
                for key, form in calls
            ),
        )
        found = predicted(predictor, CalibratedHost(store, host), workloads)
    assert {model for model, _ in found} == {"resnet18", "resnet50"}
    own = found["resnet18", board]
    assert own.factor == pytest.approx(1) and own.on_host_s == pytest.approx(own.time_s)
    others = [each.factor for (_, other), each in found.items() if other != board]
    assert others and all(abs(factor - 1) > 1e-3 for factor in others)
    assert len(set(MODELS)) == len(MODELS)
