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


def test_the_usual_host_time_of_a_kind_is_the_median_of_its_calls(filled: Store) -> None:
    seen = filled.host_visits("GPU-1")[0]
    others = [replace(seen, id=f"{s}", times_s=(s, s, 1.0)) for s in (2e-5, 3e-5)]
    filled.save_host_visits([*others, replace(seen, id="function", form="function")])
    usual = filled.host_seen("GPU-1").usual_s("conv2d")
    issued_as = samples.CONV.issued_as
    assert usual == {(issued_as, "module"): 2e-5, (issued_as, "function"): 1.3e-5}
    assert filled.host_seen("GPU-1").usual_s("relu") == {}
    assert filled.host_seen("GPU-2").usual_s("conv2d") == {}
