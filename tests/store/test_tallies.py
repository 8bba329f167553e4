"""Visits counted as they are stored, and what is pending by them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from opdb.derive import costs as rejection
from opdb.records import Board
from opdb.store import Store
from tests.store import samples

HERE = "nvidia-h200"


def test_each_visit_is_counted_as_it_is_saved(filled: Store) -> None:
    flags = (f"{rejection.REJECTED}the clock moved",)
    for number in range(3):
        filled.save_visit(samples.visit(f"again-{number}"))
        filled.save_visit(samples.visit(f"moved-{number}", flags=flags, weights="hot"))
    key = (samples.CONV.key, "default")
    assert filled.outcomes(HERE)[key] == Counter(ok=7)
    assert filled.outcomes(HERE, rejected=True) == {key: Counter(ok=3)}
    assert filled.outcomes(HERE, [samples.RELU.key], rejected=True) == {}
    assert filled.outcomes(HERE, weights="cold")[key] == Counter(ok=4)
    assert filled.outcomes(HERE, board="another board") == {}


def test_workloads_by_what_they_touch(filled: Store) -> None:
    [workload] = filled.workloads_of_unknown_size()
    keys = [samples.CONV.key, samples.ANCHOR.key]
    assert filled.touched_by(keys) == {}
    filled.save_touched_bytes({workload.key: 1_000_000})
    assert filled.workloads_of_unknown_size() == []
    assert filled.touched_by(keys) == {samples.CONV.key: (1_000_000, 1_000_000)}
    filled.save_workload(larger := replace(workload, batch_size=9, inputs={"args": [9]}))
    filled.save_touched_bytes({larger.key: 2_000_000})
    assert filled.touched_by(keys) == {samples.CONV.key: (1_000_000, 2_000_000)}
    filled.save_workload(workload)
    assert filled.workloads_of_unknown_size() == [workload], "its calls may be others"


def test_standing_is_of_one_device(filled: Store) -> None:
    filled.save_board(samples.PROCESSOR, Board("CPU-1", samples.PROCESSOR.slug))
    here, there = filled.standing("nvidia-h200"), filled.standing("a-cpu")
    assert (here.measured, here.campaigns, here.pending) == (1, 1, {"add": 1})
    assert here.visits == 2, "an anchor counts for none"
    [key] = [head.workload.key for head in filled.heads()]
    assert here.unmeasured_calls == {key: 4} and here.runs[key] == 1
    [failure] = here.failures
    assert (failure.kind, failure.outcome, failure.attempts) == ("relu", "out_of_memory", 1)
    assert failure.reason is not None and "200 GiB" in failure.reason
    assert (there.measured, there.campaigns, there.visits) == (0, 0, 0)
    assert there.pending == {"conv2d": 1, "relu": 1, "add": 1}
    assert there.unmeasured_calls == {key: 5} and not there.runs and not there.failures
    [head] = filled.heads()
    assert (head.calls, head.configurations) == (5, 3)
    assert head.workload.name == "tiny"
