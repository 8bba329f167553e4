"""A report of all published sets, made once for the tests of this folder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import pytest

from opdb.api.reports import ReportPage, report
from opdb.garbage import gc_paused
from tests import published


@dataclass(frozen=True)
class Made:
    """A report, and the seconds of the processor that it took."""

    found: ReportPage
    seconds: float


@cache
@gc_paused()
def _made() -> Made:
    path = str(published.all_sets())
    before = time.process_time()
    found = report(db=path)
    assert found.html
    return Made(found, time.process_time() - before)


@pytest.fixture
def made() -> Made:
    return _made()
