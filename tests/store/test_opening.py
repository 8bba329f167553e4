"""The default database, built of the published sets by the first command of a checkout."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.cli import main
from opdb.records import ALGORITHM_SETTING, Workload
from opdb.store import Store, database, open_store
from opdb.store.fields import APART
from opdb.store.opening import origins, usual_sets
from opdb.store.sets import export_set
from tests import published
from tests.store import samples
from tests.store.conftest import fill

ROOT = Path(__file__).parents[2]

FIRST_COMMAND = """
import sys
from pathlib import Path
from opdb.store import database, open_store
database.package_parent = lambda: Path(sys.argv[1])
with open_store() as store:
    print(len(store.visits("GPU-1")))
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a small published set and no database."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    with open_store(str(tmp_path / "source.sqlite")) as store:
        fill(store)
        export_set(store, tmp_path / "checkout" / "db" / "nvidia-h200", device="nvidia-h200")
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path / "checkout")
    return tmp_path / "checkout"


def files(checkout: Path) -> list[str]:
    return sorted(each.name for each in (checkout / "db").iterdir())


def tables(store: Store, *, but_samples: bool = False) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a database but what names the sources that it has seen."""
    left = [name for names in APART.values() for name in names] if but_samples else []
    with store.reading() as connection:
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: sorted(
                (
                    tuple(value for column, value in row.items() if column not in left)
                    for row in connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()
                ),
                key=repr,
            )
            for name in names.scalars().all()
            if name != "source"
        }


def pragma(store: Store, name: str) -> list[tuple[object, ...]]:
    with store.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"PRAGMA {name}")]


@pytest.mark.slow
def test_it_holds_what_an_import_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole published set: the same rows, every reference followed, nothing beside it."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path)
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "nvidia-h200").symlink_to(published.SET)
    with open_store() as built, open_store(str(tmp_path / "named.sqlite")) as named:
        published.import_set(named, published.SET)
        assert tables(built, but_samples=True) == tables(named, but_samples=True)
        assert tables(built) != tables(named), "raw samples stay in the set"
        for board in named.boards():
            assert built.visits(board.uuid) == named.visits(board.uuid), "and are found there"
            assert built.host_visits(board.uuid) == named.host_visits(board.uuid)
        assert pragma(built, "foreign_key_check") == []
        assert pragma(built, "integrity_check") == [("ok",)]
        assert pragma(built, "journal_mode") == [("wal",)]
        assert pragma(built, "foreign_keys") == [(1,)]
    assert files(tmp_path) == ["nvidia-h200", "opdb.sqlite"]


def publish_sweep(checkout: Path) -> Workload:
    """Put a set with one run of a workload that nobody else asked for into a checkout."""
    with open_store(str(checkout / "swept.sqlite")) as store:
        workload = samples.workload("swept")
        store.save_workload(workload, swept=True)
        store.save_campaign(samples.campaign("a-sweep"))
        forced = {"convolution_algorithm": "fft"}
        run = samples.model_run(workload, "run-2")
        store.save_model_run(replace(run, campaign="a-sweep", setting=forced))
        folder = checkout / "db" / "nvidia-h200-sweeps"
        export_set(store, folder, device="nvidia-h200")
    return workload


def test_sets_of_sweeps_are_taken_in_where_they_are_asked_for(checkout: Path) -> None:
    workload = publish_sweep(checkout)
    assert list(usual_sets()) == ["nvidia-h200"]
    assert list(usual_sets(sweeps=True)) == ["nvidia-h200", "nvidia-h200-sweeps"]
    usual = [samples.campaign().id]
    with open_store() as store:
        known = {each.name: each.taken_in for each in origins(store, waiting=True)}
        assert known == {"nvidia-h200": True, "nvidia-h200-sweeps": False}
        assert [each.id for each in store.campaigns()] == usual
        assert not store.swept_keys()
    for _ in range(2):
        with open_store(sweeps=True) as store:
            assert {each.id for each in store.campaigns()} == {*usual, "a-sweep"}
            assert store.swept_keys() == {workload.key}
            pending = store.standing("nvidia-h200").pending
            assert len(store.run_states(setting={ALGORITHM_SETTING: "fft"})) == 1
    with open_store() as store:  # what was taken in stays
        assert store.swept_keys() == {workload.key}
        assert store.standing("nvidia-h200").pending == pending == {"add": 1}


def test_a_prediction_by_an_algorithm_takes_in_what_ran_by_it(checkout: Path) -> None:
    publish_sweep(checkout)
    predict = ["predict", "swept", "--batch-size", "2"]
    assert main(predict) == 2, "no usual one does"
    assert main([*predict, "--algorithm", "fft"]) == 0


def test_several_first_commands_at_once(checkout: Path) -> None:
    command = [sys.executable, "-c", FIRST_COMMAND, str(checkout)]
    commands = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [each.communicate(timeout=60)[0] for each in commands] == ["3\n"] * 4
    left = [name for name in files(checkout) if not name.endswith(("-wal", "-shm"))]
    assert left == ["nvidia-h200", "opdb.sqlite"]


def test_a_command_that_was_killed_as_it_took_sets_in_is_made_good(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(store: Store, boards: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("opdb.store.costs.derive_pooled", killed)
        open_store()
    derived_of: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("opdb.store.costs.derive_pooled", lambda _, of: derived_of.append(of))
        for _ in range(2):
            open_store().close()
    assert derived_of == [[]]
