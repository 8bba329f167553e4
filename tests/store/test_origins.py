"""Where measurements are said to come from, and how more of them are brought in."""

from __future__ import annotations

from pathlib import Path

from opdb.store import database, open_store
from opdb.store.opening import how_to_fill, origins
from opdb.store.sets import export_set
from tests import published
from tests.store import samples
from tests.store.conftest import fill


def test_sets_are_told_by_name_and_what_was_measured_here_comes_last(tmp_path: Path) -> None:
    for name in ("b", "a"):
        with open_store(str(tmp_path / f"{name}.sqlite")) as store:
            for batch_size in (1, 2, 3):
                store.save_workload(samples.workload(name, batch_size))
            store.save_campaign(samples.campaign(name))
            store.save_visit(samples.visit(name, campaign=name))
            export_set(store, tmp_path / name, device=samples.DEVICE.slug)
    with open_store(str(tmp_path / "all.sqlite")) as store:
        assert origins(store) == []
        for name in ("b", "a"):
            published.import_set(store, tmp_path / name)
        fill(store)
        found = origins(store)
    assert [(each.name, each.place) for each in found] == [
        (str(tmp_path / "a"), "import"),
        (str(tmp_path / "b"), "import"),
        ("measured here", "here"),
    ]
    assert [each.visits for each in found] == [1, 1, 3]
    assert [each.folder for each in found] == [tmp_path / "a", tmp_path / "b", None]


def test_the_command_that_fills_a_database_is_one_to_copy() -> None:
    said = "to bring in the published measurements: opdb import "
    here = how_to_fill(database.default_url())
    assert here.startswith(said) and f" {published.SET}" in here and "--db" not in here
    assert how_to_fill("sqlite:////a/b.sqlite").endswith(" --db /a/b.sqlite")
