"""A board of a published set left out: what the others foresee of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.left_out import ALIKE, RESTS, graphs_of, groups, operators_of, without
from opdb.commands.validate import MEASURES, inside
from opdb.predict.predictor import predictor_for
from opdb.records import ROOFLINE_ALONE
from opdb.store import open_store
from tests import published


@pytest.mark.slow
def test_a_board_is_foreseen_by_the_others(tmp_path: Path) -> None:
    database, path = published.database_of("nvidia-h200-zoo"), tmp_path / "rest.sqlite"
    with open_store(str(database)) as store:
        full = predictor_for(store, None, estimates=False)
        boards = [full.board("GPU-131e7f13")]
        without(database, boards, path)
        with open_store(str(path)) as known:
            rest = predictor_for(known, full.device)
            assert not set(boards) & set(rest.boards) and len(rest.boards) == 4
            found = groups(list(operators_of(known, rest, full)))
            graphs = list(graphs_of(predictor_for(known, full.device), full, boards))
    whole = found[0]
    all_of = whole.numbers()
    assert all_of["number"] == 1064 and 0.95 < all_of["inside"] < 0.98
    named = {(each.name, each.dtype): each.numbers() for each in found}
    of_all = [each for each in found if each.name in (ALIKE, *RESTS) and each.dtype == "all"]
    assert sum(len(each.operators) for each in of_all) == len(whole.operators)
    assert 0.07 < named[ALIKE, "all"]["median_error"] < 0.08
    assert named[ROOFLINE_ALONE, "all"]["median_error"] > 0.2
    assert len(graphs) == 15 and all(g.prediction.board not in boards for g in graphs)
    assert [sum(bool(inside(g, measure)) for g in graphs) for measure in MEASURES] == [14, 14]
