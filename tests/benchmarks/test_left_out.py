"""Six boards of the published H100 left out: what the other five foresee of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.left_out import (
    ALIKE,
    RESTS,
    graphs_of,
    groups,
    operators_of,
    without,
)
from opdb.commands.validate import MEASURES, inside
from opdb.predict.predictor import predictor_for
from opdb.records import ROOFLINE_ALONE
from opdb.store import open_store
from tests import published

pytestmark = pytest.mark.slow

LEFT_OUT = (
    *("GPU-df725ee3", "GPU-f2d63bd4"),
    *("GPU-5bd2a5d1", "GPU-8ee857cd", "GPU-131af6a3", "GPU-93ff6fed"),
)


def test_the_published_h100_is_foreseen_as_the_docs_say(tmp_path: Path) -> None:
    """The figures of docs/estimates.md."""
    database, path = published.database_of("nvidia-h100"), tmp_path / "rest.sqlite"
    with open_store(str(database)) as store:
        full = predictor_for(store, None, estimates=False)
        boards = [full.board(each) for each in LEFT_OUT]
        without(database, boards, path)
        with open_store(str(path)) as known:
            rest = predictor_for(known, full.device)
            assert not set(boards) & set(rest.boards) and len(rest.boards) == 6
            found = groups(list(operators_of(known, rest, full)))
            graphs = list(graphs_of(predictor_for(known, full.device), full, boards))
    whole = found[0]
    all_of = whole.numbers()
    assert all_of["number"] == 7291 and all_of["inside"] > 0.97
    assert 0.06 < all_of["median_error"] < 0.07
    named = {(each.name, each.dtype): each.numbers() for each in found}
    in_groups = named["conv2d in groups", "bfloat16"]
    assert in_groups["number"] == 91 and 0.85 < in_groups["inside"] < 0.93
    of_all = [each for each in found if each.name in (ALIKE, *RESTS) and each.dtype == "all"]
    assert sum(len(each.operators) for each in of_all) == len(whole.operators)
    assert named[ALIKE, "all"]["median_error"] < 0.07
    assert named[ROOFLINE_ALONE, "all"]["median_error"] > 0.2
    assert len(graphs) == 75
    assert all(each.prediction.board not in boards for each in graphs)
    held = [sum(bool(inside(each, measure)) for each in graphs) for measure in MEASURES]
    assert held == [72, 69]
