from __future__ import annotations

import pytest

from opdb import workers
from tests.workers import short


@pytest.fixture
def short_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers make visits and runs as short as can be, in their own processes."""
    monkeypatch.setattr(workers, "serve", short.serve)
    short.start_quickly()
