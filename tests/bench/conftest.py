from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.bench import calibrate, visit
from opdb.bench.platform import detect
from opdb.bench.session import Session, open_session
from opdb.meters import NoMeter
from opdb.store import Store, open_store

NO_POWER = "no power meter in this test"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        yield opened


@pytest.fixture
def session() -> Session:
    """A campaign on this machine's processor, without power."""
    return open_session(detect("cpu"), NoMeter(NO_POWER))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make visits as short as can be: what they find is looked at, not how exact it is."""
    monkeypatch.setattr(visit, "SETTLE_S", 0.002)
    monkeypatch.setattr(visit, "WINDOW_S", 0.01)
    monkeypatch.setattr(calibrate, "BASE_WINDOW_S", 0.02)
    monkeypatch.setattr(calibrate, "CONTAINER_ROUNDS", 5)
