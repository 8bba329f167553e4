"""Predictions for other hosts held against passes measured here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.host_factor import (
    Predicted,
    main,
    predicted,
    quiet_passes_s,
    rows_of,
    stored,
    summary,
)
from opdb.predict import CalibratedHost, predictor_for
from opdb.records import CalibratedCall
from opdb.store import open_store
from tests import published
from tests.store import samples

PREDICTED = [
    Predicted("a", "b1", 1.25, 4e-3, 5e-3),
    Predicted("a", "b2", 0.5, 8e-3, 4e-3),
    Predicted("c", "b1", 1.25, 2e-3, 2.5e-3),
]


def test_each_pair_of_a_model_and_a_board_is_a_row() -> None:
    rows = rows_of(PREDICTED, {"a": 5e-3, "c": 2e-3}, ["a"])
    assert [(row.model, row.board, row.timed) for row in rows] == [
        ("a", "b1", True),
        ("a", "b2", True),
        ("c", "b1", False),
    ]
    assert (rows[0].without, rows[0].scaled) == pytest.approx((0.8, 1.0))
    found = summary(rows)
    assert found["all, without"]["median_percent"] == pytest.approx(25)
    assert found["all, without"]["largest_percent"] == pytest.approx(60)
    assert found["not timed, scaled"] == pytest.approx(
        {"pairs": 1, "median_percent": 25, "largest_percent": 25}
    )
    assert summary([]) == {}


def test_passes_count_by_the_quiet_tenth_of_all_processes(tmp_path: Path) -> None:
    blocks = [{"r batch 1 float32": {"passes_ns": [slow] * 25 + [2000] * 5}} for slow in (4e3, 9e3)]
    file = tmp_path / "host.json"
    file.write_text(json.dumps({"processes": blocks}))
    assert quiet_passes_s(file) == pytest.approx({"r": 2e-6})


def test_a_database_without_a_calibrated_host_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = tmp_path / "host.json"
    passes.write_text('{"processes": []}')
    db = str(published.copy_to(tmp_path / "copy.sqlite"))
    assert main(["--db", db, "--passes", str(passes)]) == 2
    assert "opdb calibrate makes one" in capsys.readouterr().err


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
