"""Where measurements are said to come from, and how more of them are brought in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opdb.store import database, open_store
from opdb.store.exchange import export_set, import_set
from opdb.store.opening import MANIFEST, SAMPLES, _origin, how_to_fill, origins
from opdb.store.sets import read_set
from tests import published
from tests.store import samples
from tests.store.conftest import fill


def test_the_folder_of_an_import_is_told_where_it_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    folders = {"set": None, str(tmp_path / "set"): tmp_path / "set", str(tmp_path / "gone"): None}
    for name, folder in folders.items():
        found = _origin(name, {}, {})
        assert (found.place, found.folder, found.taken_in) == ("import", folder, True)
    ours = _origin("set", {"set": tmp_path / "set"}, {}, taken_in=False)
    assert (ours.place, ours.folder, ours.taken_in) == ("clone", tmp_path / "set", False)
    counts = ("campaigns", "configurations", "workloads", "visits", "model_runs")
    assert {getattr(ours, name) for name in (*counts, "sampled", "left_out")} == {0}


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
            import_set(store, tmp_path / name)
        fill(store)
        found = origins(store)
    assert [(each.name, each.place) for each in found] == [
        (str(tmp_path / "a"), "import"),
        (str(tmp_path / "b"), "import"),
        ("measured here", "here"),
    ]
    assert [each.visits for each in found] == [1, 1, 3]
    assert [each.workloads for each in found] == [3, 3, 1]
    assert [each.campaigns for each in found] == [1, 1, 1]


def test_visits_that_came_without_their_samples_are_counted_apart(tmp_path: Path) -> None:
    """As a wheel carries a set: of visit-1 no samples, of an anchor its own; visit-2 failed."""
    with open_store(str(tmp_path / "source.sqlite")) as store:
        fill(store)
        export_set(store, tmp_path / "set", device=samples.DEVICE.slug)
    with open_store(str(tmp_path / "whole.sqlite")) as store:
        import_set(store, tmp_path / "set")
        [whole] = origins(store)
    for name in (SAMPLES, MANIFEST):
        (tmp_path / "set" / name).unlink()
    with open_store(str(tmp_path / "packed.sqlite")) as store:
        import_set(store, tmp_path / "set", contents=read_set(tmp_path / "set"))
        [packed] = origins(store)
    assert (whole.visits, whole.sampled, whole.left_out) == (3, 2, 0)
    assert (packed.visits, packed.sampled, packed.left_out) == (3, 1, 1)


def test_the_command_that_fills_a_database_is_one_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = published.SET.parents[1]
    said = re.compile(
        r"to bring in the published measurements \(\d\d MB, some \d\d s\): opdb import "
    )
    monkeypatch.chdir(root)
    here = how_to_fill(database.default_url())
    assert said.match(here) and f" {published.SET.relative_to(root)}" in here
    assert "--db" not in here and str(root) not in here
    monkeypatch.chdir(tmp_path)
    elsewhere = how_to_fill("sqlite:////a/b.sqlite")
    assert said.match(elsewhere) and f" {published.SET}" in elsewhere
    assert elsewhere.endswith(" --db /a/b.sqlite")
