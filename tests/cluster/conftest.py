from __future__ import annotations

import pytest

from opdb.cluster import crew
from tests.cluster import short


@pytest.fixture
def short_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers make visits and runs as short as can be, in their own processes."""
    monkeypatch.setattr(crew, "serve", short.serve)
    short.start_quickly()
