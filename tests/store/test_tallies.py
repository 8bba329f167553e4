"""Visits counted as they are stored, and what is pending by them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text

from opdb.derive import costs as rejection
from opdb.records import Board
from opdb.store import ConfigurationFilter, Store, VisitFilter, open_store, visits
from opdb.store.exchange import export_set, import_set
from tests import published
from tests.store import samples
from tests.store.small_set import edit

SETTINGS = ("default",)
HERE = VisitFilter("nvidia-h200")

RECOUNTED = """
SELECT c.device, v.configuration_id, c.board, v.setting, v.role, v.access, v.weights, v.outcome,
    sum(CASE WHEN v.flags LIKE '%"rejected: %' THEN 1 ELSE 0 END) AS rejected, count(*) AS visits
FROM visit v JOIN campaign c ON c.id = v.campaign
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
"""
TALLIED = """
SELECT device, configuration_id, board, setting, role, access, weights, outcome,
    sum(CASE WHEN rejected <> '' THEN visits ELSE 0 END) AS rejected, sum(visits) AS visits
FROM tally GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
"""


def assert_counted(store: Store) -> None:
    """Assert that the tally is what counting all visits gives."""
    with store.reading() as connection:
        counted = connection.execute(text(RECOUNTED)).all()
        assert connection.execute(text(TALLIED)).all() == counted
        assert counted


def test_the_flag_is_that_of_the_rules_for_rejection() -> None:
    assert visits.REJECTED == rejection.REJECTED
    assert visits.why_rejected(["slow", f"{rejection.REJECTED}heat", "odd"]) == "heat"
    assert visits.why_rejected(["slow"]) == ""


def test_each_visit_is_counted_as_it_is_saved(filled: Store) -> None:
    assert_counted(filled)
    flags = (f"{rejection.REJECTED}the clock moved",)
    for number in range(3):
        filled.save_visit(samples.visit(f"again-{number}"))
        filled.save_visit(samples.visit(f"moved-{number}", flags=flags, weights="hot"))
    assert_counted(filled)
    key = (samples.CONV.key, "default")
    assert filled.outcomes(HERE)[key] == Counter(ok=7)
    assert filled.outcomes(HERE, rejected=True) == {key: Counter(ok=3)}
    assert filled.outcomes(HERE, [samples.RELU.key], rejected=True) == {}
    assert filled.outcomes(VisitFilter("nvidia-h200", weights="cold"))[key] == Counter(ok=4)
    assert filled.outcomes(VisitFilter("nvidia-h200", "another board")) == {}


def test_an_import_counts_anew_what_its_source_brought(filled: Store, tmp_path: Path) -> None:
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert_counted(other)
        other.save_campaign(samples.campaign("mine"))
        other.save_visit(samples.visit("mine", campaign="mine"))
        import_set(other, tmp_path / "set")
        assert_counted(other)
        edit(tmp_path / "set", "visits", lambda rows: rows.__delitem__(-1))
        import_set(other, tmp_path / "set")
        assert_counted(other)


def test_the_published_set_is_counted(tmp_path: Path) -> None:
    with open_store(str(published.copy_to(tmp_path / "published.sqlite"))) as store:
        assert_counted(store)


def test_sets_of_one_configuration_are_counted_together(tmp_path: Path) -> None:
    """Those of another board are added; those of the board's own visits in both sets are, too."""
    names = published.write_modes_as_two_sets(tmp_path)
    with open_store(str(tmp_path / "both.sqlite")) as store:
        for name in names:
            import_set(store, tmp_path / name)
        assert_counted(store)


def among(store: Store, **given: object) -> set[str]:
    return {c.key for c in store.configurations_among(ConfigurationFilter(**given))}  # type: ignore[arg-type]


def test_configurations_by_kind_key_and_whether_they_are_called(filled: Store) -> None:
    every = {samples.CONV.key, samples.RELU.key, samples.ADD.key}
    assert among(filled) == every, "the anchor is not called"
    assert among(filled, kinds=["relu", "conv2d"]) == every - {samples.ADD.key}
    assert among(filled, keys=[samples.ANCHOR.key]) == {samples.ANCHOR.key}
    assert among(filled, keys=[samples.ANCHOR.key], called=True) == set()
    assert among(filled, keys=[]) == set()


@pytest.mark.parametrize(("bound", "calls"), [("at most", True), ("above", False)])
def test_workloads_by_what_they_touch(filled: Store, bound: str, calls: bool) -> None:
    [workload] = filled.workloads_of_unknown_size()
    assert filled.called_in([samples.CONV.key], (bound, 1e6)) == set()  # type: ignore[arg-type]
    filled.save_touched_bytes({workload.key: 1_000_000})
    assert filled.workloads_of_unknown_size() == []
    keys = [samples.CONV.key, samples.ANCHOR.key]
    found = filled.called_in(keys, (bound, 1e6))  # type: ignore[arg-type]
    assert found == ({samples.CONV.key} if calls else set())
    filled.save_workload(workload)
    assert filled.workloads_of_unknown_size() == [workload], "its calls may be others"


def test_standing_counts_rejected_visits_by_their_reason(filled: Store) -> None:
    filled.save_visit(samples.visit("hot", flags=("odd", f"{visits.REJECTED}heat")))
    found = filled.standing("nvidia-h200")
    assert found.visits == {
        ("measurement", ""): 2,
        ("measurement", "heat"): 1,
        ("anchor", ""): 1,
    }
    assert found.measured == 1


def test_standing_is_of_one_device(filled: Store) -> None:
    filled.save_board(samples.PROCESSOR, Board("CPU-1", samples.PROCESSOR.slug))
    here, there = filled.standing("nvidia-h200"), filled.standing("a-cpu")
    assert (here.measured, here.campaigns, here.pending) == (1, 1, {"add": 1})
    assert here.visits == {("measurement", ""): 2, ("anchor", ""): 1}
    [key] = [head.workload.key for head in filled.heads()]
    assert here.unmeasured_calls == {key: 4} and here.runs[key] == 1
    [failure] = here.failures
    assert (failure.kind, failure.outcome, failure.attempts) == ("relu", "out_of_memory", 1)
    assert failure.reason is not None and "200 GiB" in failure.reason
    assert (there.measured, there.campaigns, there.visits) == (0, 0, {})
    assert there.pending == {"conv2d": 1, "relu": 1, "add": 1}
    assert there.unmeasured_calls == {key: 5} and not there.runs and not there.failures
    [head] = filled.heads()
    assert (head.calls, head.configurations) == (5, 3)
    assert head.workload.name == "tiny"
