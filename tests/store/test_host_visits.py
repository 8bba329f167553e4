"""Host visits of one moment: saved together, or none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.errors import DatabaseError
from opdb.records import Form, Quantity
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
    others = [
        replace(samples.CONV, inputs={**samples.CONV.inputs, "input": {**of, "shape": shape}})
        for of in [samples.CONV.inputs["input"]]
        for shape in ([4, 3, 32, 32], [8, 3, 32, 32])
    ]
    filled.save_configurations(others)
    own = samples.cost()
    forms: list[dict[Form, float]] = [{"module": 2e-5}, {"module": 3e-5, "function": 1e-5}]
    costs = [
        replace(
            own,
            configuration=each.key,
            host_time_s={form: Quantity(s, s, s, s, 9) for form, s in times.items()},
        )
        for each, times in zip(others, forms, strict=True)
    ]
    filled.replace_costs("GPU-1", [own, *costs])
    usual = filled.host_seen("GPU-1").usual_s("conv2d")
    issued_as = samples.CONV.issued_as
    assert usual == {(issued_as, "module"): 2e-5, (issued_as, "function"): 1e-5}
    assert filled.host_seen("GPU-1").usual_s("relu") == {}
    assert filled.host_seen("GPU-2").usual_s("conv2d") == {}


def test_a_call_was_timed_in_as_many_blocks_as_its_longest_visit_has(filled: Store) -> None:
    seen = samples.host_visit()
    longer = replace(seen, id="longer", times_s=(1e-5,) * 60)
    other = replace(seen, id="other", form="function", times_s=(1e-5,) * 7)
    filled.save_host_visits([longer, other])
    call = samples.CONV.key
    found = {(call, "module"): 60, (call, "function"): 7}
    assert filled.host_blocks("GPU-1") == filled.host_blocks("GPU-1", [call]) == found
    assert filled.host_blocks("GPU-1", [samples.RELU.key]) == filled.host_blocks("GPU-2") == {}
