from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.bench.session import Session, detect, open_session
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
