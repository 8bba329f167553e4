"""Lengths left out of the published ladders of decoding steps."""

from __future__ import annotations

import statistics

from benchmarks.lengths_left_out import DEVICE, compare
from opdb.predict import predictor_for
from opdb.store import open_store
from tests import published


def test_published_steps_are_made_of_other_lengths_to_within_a_hundredth() -> None:
    """The figures of docs/generation.md."""
    with open_store(str(published.database_of("nvidia-h200-generation"))) as store:
        rows = compare(predictor_for(store, DEVICE), store.workloads())
    prefills = [row for row in rows if row.own.prediction.workload.phase == "prefill"]
    assert {row.length: round(row.own_time, 2) for row in prefills} == {1024: 1.05, 2048: 0.99}
    rows = [row for row in rows if row not in prefills]
    assert len(rows) == 33
    assert {row.length for row in rows} == {512, 1024, 1280, 2048, 4096, 8192}
    errors = [abs(row.own_time - 1) for row in rows]
    assert all(errors), "a step that is not left out is made of itself"
    assert statistics.median(errors) < 0.01 < max(errors) < 0.04
    assert statistics.median(abs(row.own_energy - 1) for row in rows) < 0.01
    assert all(row.time is not None and abs(row.time - 1) < 0.05 for row in rows)
