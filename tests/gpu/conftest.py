"""A board is calibrated once for all tests: each starts on a copy of the database that says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.bench.run import campaign
from opdb.bench.session import Session, detect
from opdb.store import Store, open_store


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file that holds this board's calibration, and nothing measured.

    It takes a minute to make; OPDB_CALIBRATED names one that
    `opdb doctor --calibrate --db` has made.
    """
    path = tmp_path_factory.mktemp("board") / "calibrated.sqlite"
    if given := os.environ.get("OPDB_CALIBRATED"):
        shutil.copy(given, path)
    with open_store(str(path)) as store, campaign(detect("cuda"), store):
        pass
    return path


@pytest.fixture(scope="module")
def store(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = shutil.copy(calibrated, tmp_path_factory.mktemp("gpu"))
    with open_store(str(path)) as opened:
        yield opened


@pytest.fixture(scope="module")
def session(store: Store) -> Iterator[Session]:
    """A campaign: what opens it takes ten seconds."""
    with campaign(detect("cuda"), store) as opened:
        yield opened
