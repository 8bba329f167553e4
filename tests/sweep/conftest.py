from __future__ import annotations

from tests.bench.conftest import store

__all__ = ["store"]
