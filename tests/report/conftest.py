"""A report of all published sets, made once for the tests of this folder."""

from __future__ import annotations

from functools import cache

import pytest

from opdb.studies.report import ReportPage, report
from tests import published


@cache
def _made() -> ReportPage:
    found = report(db=str(published.all_sets()))
    assert found.html
    return found


@pytest.fixture
def made() -> ReportPage:
    return _made()
