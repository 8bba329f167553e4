from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.records import Board
from opdb.store import Store, open_store
from opdb.store.sets import export_set
from tests.store import samples


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a database is to be, of each sort in turn."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "opdb.sqlite")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    """A database in a file, for what concerns files alone."""
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        yield opened


@pytest.fixture
def filled(store: Store) -> Store:
    """A database with one of everything."""
    fill(store)
    return store


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published set of such a database."""
    folder = tmp_path_factory.mktemp("exported")
    with open_store(str(folder / "opdb.sqlite")) as store:
        fill(store)
        export_set(store, folder / "set", device="nvidia-h200")
    return folder / "set"


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy of that set, to be changed."""
    return shutil.copytree(exported, tmp_path / "nvidia-h200")


def fill(store: Store) -> None:
    workload = samples.workload()
    store.save_workload(workload)
    store.save_configurations([samples.ANCHOR])
    store.save_campaign(samples.campaign())
    store.save_board_calibration(samples.board_calibration())
    store.save_visit(samples.visit())
    store.save_visit(samples.failed_visit())
    store.save_visit(samples.anchor_visit())
    store.save_host_visits([samples.host_visit()])
    store.save_model_run(samples.model_run(workload))
    store.replace_costs("GPU-1", [samples.cost()])
    store.save_learned(
        Board("GPU-1", samples.DEVICE.slug),
        samples.LEARNED["trained_at"],
        samples.LEARNED,
        samples.RATIOS,
    )
    store.save_profiles([samples.profile()])
