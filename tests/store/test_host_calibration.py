"""Calibrations of hosts: the last of a host counts, and nothing else sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.records import Board
from opdb.store import Store
from opdb.store.deriving import derived
from opdb.store.exchange import export_set
from tests.store import samples


def test_the_last_calibration_of_a_host_is_read_as_it_was_saved(filled: Store) -> None:
    assert filled.host_calibration("host-1") is None
    late, early = (
        samples.host_calibration(name, f"2026-11-20T{hour}:00:00Z")
        for name, hour in (("late", 14), ("early", 13))
    )
    for each in (late, early, replace(late, id="elsewhere", host="host-2")):
        filled.save_host_calibration(each)
    assert filled.host_calibration("host-1") == late
    [first, second] = late.visits
    assert (first.campaign, second.campaign, second.form) == ("late", "late", "function")
    with pytest.raises(DatabaseError):
        filled.save_host_calibration(late)
    with pytest.raises(DatabaseError):
        filled.save_host_calibration(replace(late, id="new", board=Board("GPU-9", "nvidia-h200")))


def test_no_board_has_measured_anything_by_it(filled: Store, tmp_path: Path) -> None:
    def seen() -> object:
        return (
            filled.host_visits(),
            filled.host_seen("GPU-1").by_kind,
            filled.campaigns(),
            filled.costs("GPU-1"),
            derived(filled, "GPU-1"),
            export_set(filled, tmp_path / "set", device="nvidia-h200"),
        )

    before = seen()
    filled.save_host_calibration(samples.host_calibration())
    assert seen() == before
