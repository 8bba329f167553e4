"""What a model calls otherwise while it is captured: stored beside it, published with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.records import Call, Workload
from opdb.store import Store, open_store
from opdb.store.sets import export_set
from tests.published import import_set
from tests.store import samples
from tests.store.small_set import unpacked

PLAIN = samples.workload()
OTHER = replace(samples.ADD, kind="mul")
CAPTURED = replace(PLAIN, calls=(*PLAIN.calls, Call(OTHER, "function")), captured=True)


@pytest.fixture
def both(filled: Store) -> Store:
    filled.save_workload(PLAIN, CAPTURED)
    return filled


def kept(store: Store) -> tuple[list[Workload], list[Workload]]:
    return store.workloads(), store.workloads(captured=True)


def test_it_comes_where_it_is_asked_for(both: Store) -> None:
    assert kept(both) == ([PLAIN], [CAPTURED])
    assert both.captured(PLAIN) == CAPTURED and both.captured_keys() == {PLAIN.key: CAPTURED.key}
    assert both.captured(samples.workload("other")) is None
    assert both.workloads_by_key([CAPTURED.key]) == [CAPTURED]
    assert both.workloads(compiled_for="nvidia-h200") == []
    assert [head.workload.key for head in both.heads()] == [PLAIN.key]


def test_a_harvest_that_finds_none_forgets_that_of_an_earlier_one(both: Store) -> None:
    both.save_workload(samples.workload("other"))
    both.save_workload(replace(PLAIN, compiled_for="nvidia-h200"))
    assert both.captured(PLAIN) == CAPTURED
    shorter = replace(CAPTURED, calls=CAPTURED.calls[1:])
    both.save_workload(PLAIN, shorter)
    assert both.captured(PLAIN) == shorter
    both.save_workload(PLAIN)
    assert both.captured(PLAIN) is None and both.captured_keys() == {}
    assert both.model_runs(PLAIN.key) == [samples.model_run(PLAIN)]


def test_it_comes_through_a_published_set(both: Store, tmp_path: Path) -> None:
    export_set(both, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert sorted(w.key for w in other.workloads(captured=True)) == [CAPTURED.key]
        assert kept(other) == kept(both)


def test_a_set_that_says_it_wrongly_is_refused(both: Store, tmp_path: Path) -> None:
    export_set(both, tmp_path / "set", device="nvidia-h200")
    with unpacked(tmp_path / "set") as connection:
        connection.execute("UPDATE workload SET captured = 0 WHERE key = ?", (CAPTURED.key,))
    with (
        open_store(str(tmp_path / "other.sqlite")) as other,
        pytest.raises(InputError, match="its row was altered"),
    ):
        import_set(other, tmp_path / "set")
