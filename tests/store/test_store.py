from __future__ import annotations

import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.records import ALGORITHM_SETTING, Form, Mode, Quantity, Workload
from opdb.runs import ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import Store, open_store, usual_host_s
from opdb.store.costs import alike, derive_costs, derived
from tests import published, warm
from tests.store import samples


def test_what_is_read_equals_what_was_saved(filled: Store) -> None:
    workload = samples.workload()
    assert filled.workloads() == [workload]
    assert filled.campaigns() == [samples.campaign()]
    assert filled.visits("GPU-1") == [
        samples.visit(),
        samples.failed_visit(),
        samples.anchor_visit(),
    ]
    assert [v.outputs for v in filled.visits("GPU-1")] == [None, "reused", "fresh"]
    assert filled.host_visits("GPU-1") == [samples.host_visit()]
    assert filled.model_runs() == [samples.model_run(workload)]
    assert filled.costs("GPU-1") == {samples.CONV.key: [samples.cost()]}
    assert filled.devices() == [samples.DEVICE]
    assert filled.boards() == [samples.campaign().board]


def test_campaigns_are_read_oldest_first(filled: Store) -> None:
    earlier = replace(samples.campaign("the-first"), started_at="2026-11-19T10:00:00Z")
    filled.save_campaign(earlier)
    assert filled.campaigns() == [earlier, samples.campaign()]


def test_the_kernels_of_a_call_are_those_of_its_last_good_visit(filled: Store) -> None:
    at = "2026-11-20T11:00:00Z"
    filled.save_visit(samples.visit("later", started_at=at, kernels={"winograd": 2}))
    setting = f'{{"{ALGORITHM_SETTING}":"fft"}}'
    filled.save_visit(samples.visit("forced", started_at="2026-11-20T12:00:00Z", setting=setting))
    assert filled.kernels("GPU-1") == {
        samples.CONV.key: {"winograd": 2},
        samples.ANCHOR.key: {"implicit_convolve_sgemm": 1},
    }
    assert filled.kernels("GPU-2") == {}
    filled.save_visit(samples.visit("two", samples.RELU, kernels={"first": 1, "second": 4}))
    asked = [samples.RELU.key, samples.CONV.key, samples.ADD.key]
    counts = filled.different_kernels("nvidia-h200", asked)
    assert counts == {samples.RELU.key: 2, samples.CONV.key: 1}, "by name, of what was seen"
    assert filled.different_kernels("another", asked) == {}


def test_a_good_run_goes_before_a_failed_one_and_the_last_counts(filled: Store) -> None:
    good, bad = samples.workload(), samples.workload("other")
    filled.save_workload(bad)
    failed = replace(samples.model_run(good, "run-2"), outcome="error", reason="first")
    first = replace(failed, id="run-3", workload=bad.key)
    last = replace(first, id="run-4", started_at="2026-11-20T11:00:00Z", reason="last")
    graph = replace(samples.model_run(good, "run-5"), mode="graph", cost_s=6.0)
    for run in (replace(failed, started_at="2026-11-20T12:00:00Z"), last, first, graph):
        filled.save_model_run(run)
    policy = ModelPolicy(("nvidia-h200",), ("GPU-1",))
    table = RunTable(policy, policy.runs(filled))

    def outcome(workload: Workload, mode: Mode) -> tuple[str, str | None] | None:
        run = table.run(ModelRunSpec(ModelSpec("m"), workload.key, mode, policy.boards))
        return None if run is None else (run.outcome, run.reason)

    assert outcome(good, "eager") == ("ok", None)
    assert outcome(bad, "eager") == ("error", "last")
    assert outcome(good, "graph") == ("ok", None)
    assert outcome(bad, "graph") is None
    assert filled.run_states(board="GPU-2", mode="eager") == []


def test_a_run_in_a_setting_of_its_own_is_not_taken_for_a_usual_one(filled: Store) -> None:
    workload = samples.workload()
    usual = samples.model_run(workload)
    setting = {"convolution_algorithm": "fft"}
    forced = replace(usual, id="run-2", mode="graph", cost_s=9.0, setting=setting)
    filled.save_model_run(forced)
    assert filled.model_runs() == [usual]
    assert filled.model_runs(setting=setting) == [forced]
    assert filled.model_runs(setting={"convolution_algorithm": "gemm"}) == []
    assert filled.model_runs(setting=None) == [usual, forced]
    assert filled.measured("nvidia-h200", "graph") == []
    assert filled.run_states(board="GPU-1", mode="graph") == []
    assert filled.standing("nvidia-h200").runs[workload.key] == 1


WRITER = """
import os, signal, sys
from opdb.store import open_store
from tests.store import samples
store = open_store(sys.argv[1])
for number in range(30):
    store.save_visit(samples.visit(f"killed-{number:02d}"))
print("saved", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_no_visit_that_was_saved(filled: Store, url: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        warm.command("-c", WRITER, url), capture_output=True, text=True, cwd=root, check=False
    )
    assert done.stdout == "saved\n", done.stderr
    assert done.returncode == -9
    with open_store(url) as store:
        kept = [v.id for v in store.visits("GPU-1") if v.id.startswith("killed")]
    assert kept == [f"killed-{number:02d}" for number in range(30)]


# Host visits of one moment: saved together, or none of them.


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
    usual = usual_host_s(filled.host_seen("GPU-1")["conv2d"])
    issued_as = samples.CONV.issued_as
    assert usual == {(issued_as, "module"): 2e-5, (issued_as, "function"): 1e-5}
    assert filled.host_seen("GPU-2") == {}


# Calibrations of hosts: the last of a host counts, and nothing else sees them.


# Workloads found by the fingerprint of their harvest, as long as they are what it left.


UNCOMPILED = samples.workload()
CAPTURED = replace(UNCOMPILED, calls=UNCOMPILED.calls[1:], captured=True)
COMPILED = replace(UNCOMPILED, calls=UNCOMPILED.calls[:1], compiled_for="nvidia-h200")


def test_it_is_what_the_last_harvest_left(filled: Store) -> None:
    assert filled.harvested("a") is None
    filled.save_workload(UNCOMPILED, CAPTURED, fingerprint="a")
    filled.save_workload(COMPILED, fingerprint="a")
    assert filled.harvested("a") == (UNCOMPILED, CAPTURED)
    assert filled.harvested("a", compiled_for="nvidia-h200") == (COMPILED, None)
    assert filled.harvested("a", compiled_for="cpu") is filled.harvested("b") is None
    filled.save_workload(UNCOMPILED, fingerprint="b")
    assert filled.harvested("a") is None and filled.harvested("b") == (UNCOMPILED, None)
    filled.save_workload(UNCOMPILED)
    assert filled.harvested("b") is None


# Rows given by column: each is inserted once and in order, however many one statement takes.


# Costs derived anew: what is stored, and what is said where it is not the same.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_what_differs_is_counted_and_put_right(path: Path) -> None:
    with open_store(str(path)) as store:
        board = min(store.cost_counts(), key=store.cost_counts().__getitem__)
        before = store.costs(board)
        assert derived(store, board)[1] == 0
        first, second, *rest = (cost for costs in before.values() for cost in costs)
        assert first.time_s is not None
        slower = replace(first, time_s=first.time_s.moved(0.5 * first.time_s.mean))
        older = replace(second, estimator="0")
        store.replace_costs(board, [slower, older, *rest[:-1]])
        assert derived(store, board)[1] == 3
        assert derive_costs(store, board) == len(before)
        after = store.costs(board)
        assert after.keys() == before.keys(), "the older estimator's cost is gone too"
        for key, costs in before.items():
            for old, new in zip(costs, after[key], strict=True):
                assert alike(asdict(old), asdict(new))
