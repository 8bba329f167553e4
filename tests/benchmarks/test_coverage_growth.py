"""How coverage grows, on the published set: the bar holds, and the figures are what they say."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.coverage_growth import (
    BAR,
    GOAL,
    ORDERS,
    Curve,
    Truth,
    compare,
    coverages,
    curve,
    truth,
    write_csv,
    write_svg,
)
from opdb.store import open_store
from tests import published

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def found() -> tuple[Truth, dict[str, Curve], dict[str, object]]:
    with open_store(str(published.database())) as store:
        of = truth(store, published.DEVICE)
    return of, *compare(of, GOAL)


def test_significance_needs_at_most_so_much_of_what_harvest_order_needs(
    found: tuple[Truth, dict[str, Curve], dict[str, object]],
) -> None:
    _, curves, figures = found
    assert set(curves) == set(ORDERS)
    mine, usual = curves["significance"], curves["harvest order"]
    assert mine.last_s / usual.last_s <= BAR and mine.mean_s / usual.mean_s <= BAR
    assert figures["workloads"] == len(mine.reached_s) > 30
    assert curves["oracle"].last_s <= mine.last_s <= curves["everything"].last_s


def test_every_curve_grows_to_the_goal(
    found: tuple[Truth, dict[str, Curve], dict[str, object]],
) -> None:
    of, curves, _ = found
    for each in curves.values():
        for before, after in zip(each.points, each.points[1:], strict=False):
            assert after.gpu_seconds >= before.gpu_seconds and after.at_goal >= before.at_goal
            assert after.least >= before.least - 1e-9 and after.mean >= before.mean - 1e-9
        assert each.points[-1].at_goal == len(of.shares) and each.points[-1].least >= GOAL - 1e-9
    everything = list(of.survey.configurations)
    assert min(coverages(of, everything)) == pytest.approx(1)
    with pytest.raises(ValueError, match="before every model"):
        curve(of, everything[:10], GOAL)


def test_the_figures_in_the_docs_are_those_of_the_published_set(
    found: tuple[Truth, dict[str, Curve], dict[str, object]], tmp_path: Path
) -> None:
    _, curves, figures = found
    write_csv(curves, tmp_path / "growth.csv")
    write_svg(curves, figures, tmp_path / "growth.svg")
    rows = list(csv.DictReader((tmp_path / "growth.csv").open()))
    in_docs = list(csv.DictReader((DOCS / "coverage_growth.csv").open()))
    assert {row["order"] for row in rows} == {row["order"] for row in in_docs} == set(ORDERS)
    for name in ("harvest order", "everything"):
        mine = [row for row in rows if row["order"] == name]
        assert mine == [row for row in in_docs if row["order"] == name]
    root = ElementTree.parse(tmp_path / "growth.svg").getroot()
    assert sum(each.tag.endswith("polyline") for each in root.iter()) == 2 * len(ORDERS)
