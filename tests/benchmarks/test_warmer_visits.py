"""Visits of one configuration at two temperatures, of the published H100."""

from __future__ import annotations

import json
import math
import sys

import pytest

from benchmarks.warmer_visits import Pair, Warmer, by_power, main, pairs_of
from opdb.predict import predictor_for
from opdb.store import open_store
from tests import published


def test_power_rises_by_a_quarter_of_a_percent_a_kelvin_and_times_stay() -> None:
    """The figures of docs/measuring.md."""
    with open_store(str(published.database_of("nvidia-h100"))) as store:
        predictor = predictor_for(store, None, estimates=False)
        boards = [predictor.board(each) for each in ("GPU-41172d06", "GPU-91e6991b")]
        found = [list(by_power(board, list(pairs_of(store, board)))) for board in boards]
    for whole, *bands in found:
        assert len(whole.pairs) > 200 and len(bands) >= 4
        assert whole.time == pytest.approx(1, abs=0.001) and whole.energy > 1.015
        assert whole.a_kelvin is not None and 0.002 < whole.a_kelvin < 0.003
        assert sum(len(each.pairs) for each in bands) >= 0.95 * len(whole.pairs)


def test_a_share_a_kelvin_is_of_pairs_that_are_apart() -> None:
    pairs = [Pair(k, 300.0, math.exp(0.002 * k), 1.0) for k in (-4.0, 2.0, 6.0, 8.0, 10.0)]
    near = [Pair(1.0, 300.0, 1.5, 1.0)] * 9
    both = Warmer("GPU-0", [*pairs, *near]).a_kelvin
    assert both is not None and both == pytest.approx(0.002)
    assert Warmer("GPU-0", near).a_kelvin is None


def test_boards_are_named_and_one_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(published.database_of("nvidia-h100"))
    monkeypatch.setattr(sys, "argv", ["warmer_visits", database, "GPU-41172d06", "--json"])
    assert main() == 0
    assert {row["board"] for row in json.loads(capsys.readouterr().out)} == {"GPU-41172d06"}
    monkeypatch.setattr(sys, "argv", ["warmer_visits", database, "GPU-0"])
    assert main() == 2
    assert "GPU-0" in capsys.readouterr().err
