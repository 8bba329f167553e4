"""Host visits of one moment: saved together, or none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.errors import DatabaseError
from opdb.store import Store
from tests.store import samples


def test_a_moment_is_saved_whole_or_not_at_all(filled: Store) -> None:
    before = filled.host_visits("GPU-1")
    good = replace(samples.host_visit(), id="another")
    with pytest.raises(DatabaseError, match="configuration nothing is not stored"):
        filled.save_host_visits([good, replace(good, id="third", configuration="nothing")])
    with pytest.raises(DatabaseError):
        filled.save_host_visits([good, before[0]])
    assert filled.host_visits("GPU-1") == before
    filled.save_host_visits([good])
    assert {v.id: v for v in filled.host_visits("GPU-1")} == {v.id: v for v in (*before, good)}
