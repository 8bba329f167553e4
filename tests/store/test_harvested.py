"""Workloads found by the fingerprint of their harvest, as long as they are what it left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opdb.store import Store, open_store
from opdb.store.exchange import export_set, import_set
from tests.store import samples

PLAIN = samples.workload()
CAPTURED = replace(PLAIN, calls=PLAIN.calls[1:], captured=True)
COMPILED = replace(PLAIN, calls=PLAIN.calls[:1], compiled_for="nvidia-h200")


def test_it_is_what_the_last_harvest_left(filled: Store) -> None:
    assert filled.harvested("a") is None
    filled.save_workload(PLAIN, CAPTURED, fingerprint="a")
    filled.save_workload(COMPILED, fingerprint="a")
    assert filled.harvested("a") == (PLAIN, CAPTURED)
    assert filled.harvested("a", compiled_for="nvidia-h200") == (COMPILED, None)
    assert filled.harvested("a", compiled_for="cpu") is filled.harvested("b") is None
    filled.save_workload(PLAIN, fingerprint="b")
    assert filled.harvested("a") is None and filled.harvested("b") == (PLAIN, None)
    filled.save_workload(PLAIN)
    assert filled.harvested("b") is None


def test_no_set_brings_it_or_takes_it(filled: Store, tmp_path: Path) -> None:
    filled.save_workload(PLAIN, CAPTURED, fingerprint="a")
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert other.workloads() == [PLAIN] and other.harvested("a") is None
        other.save_workload(PLAIN, CAPTURED, fingerprint="b")
        import_set(other, tmp_path / "set")
        assert other.harvested("b") == (PLAIN, CAPTURED)


def test_what_a_set_says_that_it_calls_captured_is_no_harvest_of_here(
    filled: Store, tmp_path: Path
) -> None:
    """In the version of the set it calls something else captured, in that of here it does not."""
    filled.save_workload(PLAIN, CAPTURED)
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        other.save_workload(PLAIN, fingerprint="a")
        assert other.harvested("a") == (PLAIN, None)
        import_set(other, tmp_path / "set")
        assert other.captured(PLAIN) == CAPTURED and other.harvested("a") is None
