from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import select

from opdb.errors import DatabaseError
from opdb.records import (
    ALGORITHM_SETTING,
    Board,
    Call,
    Configuration,
    Form,
    Mode,
    Quantity,
    Workload,
)
from opdb.runs import ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import Store, VisitFilter, open_store, schema
from opdb.store import database as module
from opdb.store.deriving import alike, derive_costs, derived
from opdb.store.exchange import export_set, import_set
from opdb.store.rows import VALUES_AT_ONCE, upsert_columns
from tests import published, warm
from tests.store import samples

PLAIN = samples.workload()


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
    assert filled.hosts() == [samples.HOST]


def test_a_board_is_stored_before_anything_is_measured_on_it(store: Store) -> None:
    board = samples.campaign().board
    for _ in range(2):
        store.save_board(samples.DEVICE, board)
    assert (store.devices(), store.boards()) == ([samples.DEVICE], [board])


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


def test_workloads_are_found_by_what_identifies_them(store: Store) -> None:
    for name, batch, dtype in (("b", 1, "float32"), ("a", 8, "float32"), ("a", 1, "bfloat16")):
        store.save_workload(samples.workload(name, batch, dtype))
    assert store.workload_names() == ["a", "b"]
    assert [w.batch_size for w in store.workloads("a")] == [1, 8]
    assert store.workloads("a", batch_size=8) == [samples.workload("a", 8)]
    assert store.workloads("a", dtype="bfloat16") == [samples.workload("a", 1, "bfloat16")]
    assert store.workloads("a", phase="training") == []
    assert store.workloads("c") == []


def test_a_second_harvest_takes_the_place_of_the_first(store: Store) -> None:
    first = samples.workload()
    second = replace(first, calls=(Call(samples.RELU, "function"),), source_version="0.29.0")
    store.save_workload(first)
    store.save_workload(second)
    assert store.workloads() == [second]
    assert len(store.configurations()) == 3


def test_configurations_by_kind_and_key(filled: Store) -> None:
    assert filled.configurations(["conv2d", "linear"]) == [samples.CONV, samples.ANCHOR]
    assert len(filled.configurations()) == 4
    assert filled.configurations([]) == []
    assert filled.configuration(samples.ADD.key) == samples.ADD
    assert filled.configuration("0" * 64) is None


def test_usage_counts_calls_over_workloads(filled: Store) -> None:
    filled.save_workload(samples.workload("other"))
    assert filled.usage() == {samples.CONV.key: 2, samples.ADD.key: 2, samples.RELU.key: 6}


def test_outcomes_are_those_of_measurements_on_the_device(filled: Store) -> None:
    filled.save_visit(samples.visit("visit-4"))
    filled.save_visit(samples.visit("visit-5", setting="tf32"))
    assert filled.outcomes(VisitFilter("nvidia-h200")) == {
        (samples.CONV.key, "default"): Counter(ok=2),
        (samples.CONV.key, "tf32"): Counter(ok=1),
        (samples.RELU.key, "default"): Counter(out_of_memory=1),
    }
    assert filled.outcomes(VisitFilter("other")) == {}


def test_reads_keep_to_their_board_and_configurations(filled: Store) -> None:
    filled.save_campaign(samples.campaign("campaign-2", "GPU-2"))
    filled.save_visit(samples.visit("other", campaign="campaign-2"))
    filled.replace_costs("GPU-2", [samples.cost(board="GPU-2")])
    assert [v.id for v in filled.visits("GPU-2")] == ["other"]
    assert [v.id for v in filled.visits("GPU-1", [samples.RELU.key])] == ["visit-2"]
    assert filled.visits("GPU-1", []) == []
    assert filled.costs("GPU-1", [samples.RELU.key]) == {}
    assert list(filled.costs("GPU-2", [samples.CONV.key])) == [samples.CONV.key]
    assert filled.host_visits(host="host-1", configurations=[samples.RELU.key]) == []
    assert [c.id for c in filled.campaigns(board="GPU-2")] == ["campaign-2"]
    assert filled.model_runs(mode="graph") == []
    assert len(filled.model_runs(samples.workload().key, device="nvidia-h200", board="GPU-1")) == 1


def test_boards_and_settings_of_times_without_those_of_costs_that_have_no_time(
    filled: Store,
) -> None:
    own = samples.cost(board="GPU-2")
    untimed = replace(samples.cost(samples.RELU, board="GPU-2"), time_s=None)
    filled.replace_costs("GPU-2", [own, replace(own, setting="tf32"), untimed])
    assert filled.timed_on([samples.CONV.key, samples.RELU.key]) == {
        samples.CONV.key: {"GPU-1": {"default"}, "GPU-2": {"default", "tf32"}}
    }


def test_what_visits_took_by_configuration_and_board_without_anchors(filled: Store) -> None:
    filled.save_visit(samples.visit("again", cost_s=0.5))
    filled.save_visit(samples.visit("blind", role="duplicate", cost_s=0.25))
    filled.save_visit(samples.visit("streamed", access="streamed", cost_s=100.0))
    filled.save_campaign(samples.campaign("campaign-2", "GPU-2"))
    filled.save_visit(samples.visit("other", campaign="campaign-2", cost_s=2.0))
    conv, relu = samples.CONV, samples.RELU
    found = {(s.configuration, s.board): (s.kind, s.seconds) for s in filled.spent("nvidia-h200")}
    assert found == {
        (conv.key, "GPU-1"): ("conv2d", pytest.approx(0.41 + 0.5 + 0.25)),
        (conv.key, "GPU-2"): ("conv2d", 2.0),
        (relu.key, "GPU-1"): ("relu", 0.41),
    }
    kinds = {kind for kind, _ in found.values()}
    assert {s.kind for s in filled.spent("nvidia-h200", kinds=[min(kinds)])} == {min(kinds)}
    assert filled.spent("nvidia-h200", kinds=()) == []
    assert filled.spent("nowhere") == filled.spent("nvidia-h200' OR '1'='1") == []


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
    assert filled.run_seconds("nvidia-h200", "eager") == [4.5]
    assert filled.run_seconds("nvidia-h200", "graph") == [6.0]
    assert filled.run_seconds("nvidia-h200", "compile") == []
    assert filled.run_seconds("nowhere", "eager") == []


def test_of_a_workloads_boards_that_of_the_latest_run_is_last(filled: Store) -> None:
    """Whether or not it ran the workload before: GPU-1, GPU-2, and GPU-1 again."""
    filled.save_campaign(samples.campaign("campaign-2", "GPU-2"))
    first = samples.model_run(samples.workload())
    other = replace(
        first, id="run-2", campaign="campaign-2", started_at="2026-11-20T11:00:00Z", cost_s=5.5
    )
    again = replace(first, id="run-3", started_at="2026-11-20T12:00:00Z", cost_s=6.5)
    boards = []
    for run in (other, again):
        filled.save_model_run(run)
        boards.append([each.board for each in filled.measured("nvidia-h200", "eager")])
    assert boards == [["GPU-1", "GPU-2"], ["GPU-2", "GPU-1"]]
    assert filled.run_seconds("nvidia-h200", "eager") == [4.5, 5.5, 6.5]


def test_visits_are_read_oldest_first(filled: Store) -> None:
    moments = {"visit-z": "09:00", "visit-b": "11:00", "visit-a": "11:00"}
    for identity, at in moments.items():
        filled.save_visit(samples.visit(identity, started_at=f"2026-11-20T{at}:00Z"))
    found = [visit.id for visit in filled.visits("GPU-1") if visit.id in {*moments, "visit-1"}]
    assert found == ["visit-z", "visit-1", "visit-a", "visit-b"]


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
    assert filled.run_seconds("nvidia-h200", "eager") == [4.5]
    assert filled.run_seconds("nvidia-h200", "graph") == []
    assert filled.standing("nvidia-h200").runs[workload.key] == 1


def test_more_keys_than_one_statement_binds(filled: Store) -> None:
    keys = [samples.CONV.key, *(f"{number:064x}" for number in range(25_000))]
    assert list(filled.costs("GPU-1", keys)) == [samples.CONV.key]


def test_costs_by_a_forced_algorithm_are_none_of_what_runs_as_usual(filled: Store) -> None:
    of, usual = samples.workload().key, samples.cost()
    forced = replace(usual, setting='{"convolution_algorithm":"gemm"}')
    for costs, counted in (([usual, forced], {(of, "GPU-1"): 1}), ([forced], {})):
        filled.replace_costs("GPU-1", costs)
        assert filled.cost_counts_of_workloads([of]) == counted


def test_only_what_was_visited_again_on_a_board_of_the_device_is_repeated(filled: Store) -> None:
    once, usual = replace(samples.cost(), visits=1), replace(samples.cost(), visits=2)
    forced = replace(usual, setting='{"convolution_algorithm":"gemm"}')
    filled.replace_costs("GPU-1", [replace(usual, energy_j=None), forced])
    [seen] = filled.repeated(samples.DEVICE.slug)
    assert (seen.kind, seen.visits) == (samples.CONV.kind, 2)
    assert (seen.time_s, seen.energy_j) == (usual.time_s, None)
    assert filled.repeated("another") == []
    filled.replace_costs("GPU-1", [once])
    assert filled.repeated(samples.DEVICE.slug) == []


def test_a_visit_of_what_is_not_stored_is_refused(filled: Store) -> None:
    with pytest.raises(DatabaseError, match=r"configuration [0-9a-f]{64} is not stored"):
        filled.save_visit(samples.visit("new", replace(samples.CONV, kind="conv3d")))
    with pytest.raises(DatabaseError, match="not stored"):
        filled.save_visit(samples.visit("new", campaign="nowhere"))
    with pytest.raises(ValueError, match="board of device"):
        filled.save_campaign(replace(samples.campaign(), device=samples.PROCESSOR))


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


def test_two_processes_write_at_once(filled: Store, url: str) -> None:
    program = WRITER.replace("killed-", "{me}-").replace('f"{me}', 'sys.argv[2] + f"')
    program = program.replace("os.kill(os.getpid(), signal.SIGKILL)", "")
    root = Path(__file__).parents[2]
    writers = [subprocess.Popen(warm.command("-c", program, url, name), cwd=root) for name in "ab"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert len(filled.visits("GPU-1")) == 63


def test_a_harvest_tells_how_many_runs_called_something_else(filled: Store) -> None:
    newer = replace(PLAIN, source_version="9.9")
    fewer = replace(PLAIN, calls=PLAIN.calls[1:])
    other_form = [replace(call, form="function") for call in PLAIN.calls]
    assert filled.save_workload(PLAIN) == 0
    assert filled.save_workload(fewer) == 0, "the same version: opdb describes it better"
    assert filled.save_workload(PLAIN) == 0
    assert filled.save_workload(newer) == 0, "another version that calls the same"
    assert filled.save_workload(fewer) == 1
    assert filled.save_workload(replace(newer, calls=fewer.calls)) == 0
    assert filled.save_workload(replace(PLAIN, calls=tuple(other_form[1:]))) == 1
    assert filled.save_workload(samples.workload("other")) == 0


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


# Calibrations of hosts: the last of a host counts, and nothing else sees them.


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


def test_no_set_brings_it_or_takes_it(filled: Store, tmp_path: Path) -> None:
    filled.save_workload(UNCOMPILED, CAPTURED, fingerprint="a")
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert other.workloads() == [UNCOMPILED] and other.harvested("a") is None
        other.save_workload(UNCOMPILED, CAPTURED, fingerprint="b")
        import_set(other, tmp_path / "set")
        assert other.harvested("b") == (UNCOMPILED, CAPTURED)


def test_what_a_set_says_that_it_calls_captured_is_no_harvest_of_here(
    filled: Store, tmp_path: Path
) -> None:
    """In the version of the set it calls something else captured, in that of here it does not."""
    filled.save_workload(UNCOMPILED, CAPTURED)
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        other.save_workload(UNCOMPILED, fingerprint="a")
        assert other.harvested("a") == (UNCOMPILED, None)
        import_set(other, tmp_path / "set")
        assert other.captured(UNCOMPILED) == CAPTURED and other.harvested("a") is None


# Rows given by column: each is inserted once and in order, however many one statement takes.


ROWS_AT_ONCE = VALUES_AT_ONCE // 4
"""Hosts have four columns."""


def hosts(names: list[str], cores: int) -> dict[str, list[Any]]:
    count = len(names)
    return {"id": names, "cpu": names, "cores": [cores] * count, "system": ["Linux"] * count}


@pytest.mark.parametrize("count", [ROWS_AT_ONCE // 2, ROWS_AT_ONCE + 1])
@pytest.mark.parametrize(("replace", "cores"), [(True, 16), (False, 8)])
def test_rows_that_come_twice_are_replaced_or_left(
    tmp_path: Path, count: int, replace: bool, cores: int
) -> None:
    """Within one statement, and in a later one."""
    names = [f"{number:04}" for number in range(count)]
    once, again = hosts(names, 8), hosts(names, 16)
    found = {name: [*once[name], *again[name]] for name in once}
    host = schema.host
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        with store.writing() as connection:
            upsert_columns(connection, host, found, ["id"], replace=replace)
        with store.reading() as connection:
            query = select(host.c.id, host.c.cores).order_by(host.c.id)
            assert connection.execute(query).all() == [(name, cores) for name in names]


# Costs derived anew: what is stored, and what is said where it is not the same.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_what_differs_is_counted_and_put_right(path: Path) -> None:
    with open_store(str(path)) as store:
        board = min(store.cost_counts(), key=store.cost_counts().__getitem__)
        before = store.costs(board)
        assert derived(store, board).is_as_stored
        first, second, *rest = (cost for costs in before.values() for cost in costs)
        assert first.time_s is not None
        slower = replace(first, time_s=first.time_s.moved(0.5 * first.time_s.mean))
        older = replace(second, estimator="0")
        store.replace_costs(board, [slower, older, *rest[:-1]])
        found = derived(store, board)
        assert (found.new, found.gone, found.changed) == (1, 0, 2)
        assert found.time == pytest.approx(1 / 3) and found.energy == 0
        assert derive_costs(store, board) == len(before)
        after = store.costs(board)
        assert after.keys() == before.keys(), "the older estimator's cost is gone too"
        for key, costs in before.items():
            for old, new in zip(costs, after[key], strict=True):
                assert alike(asdict(old), asdict(new))


def test_a_cost_without_visits_is_gone(path: Path) -> None:
    with open_store(str(path)) as store:
        board = min(store.cost_counts(), key=store.cost_counts().__getitem__)
        cost = next(iter(store.costs(board).values()))[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        number = "SELECT id FROM configuration WHERE key = ?"
        connection.execute(
            f"DELETE FROM visit WHERE configuration_id = ({number})", (cost.configuration,)
        )
    with open_store(str(path)) as store:
        assert derived(store, board).gone == 1


# Ctrl-C wherever it strikes in a save: what follows it can write, at once.


def _made(elements: int) -> Configuration:
    return Configuration("relu", {}, {"input": {"shape": [elements], "dtype": "float32"}})


class _Struck:
    """Raises KeyboardInterrupt at the nth call or return that the interpreter comes to."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _frame: FrameType, _event: str, given: Any) -> None:
        self.left -= given is not sys.setprofile  # what ends it is let go on
        if self.left == 0:
            raise KeyboardInterrupt


def _save(store: Store, elements: int, at: int) -> tuple[bool, BaseException | None]:
    """Save a configuration, interrupted at the nth event; return if it came, and what of it."""
    strike, came_of_it = _Struck(at), None
    gc.disable()  # what strikes while garbage is collected is printed and lost
    sys.setprofile(strike)
    try:
        store.save_configurations([_made(elements)])
    except BaseException as error:  # noqa: BLE001 - a library may make another error of it
        came_of_it = error
    finally:
        sys.setprofile(None)
        gc.enable()
    return strike.left <= 0, came_of_it


def _strike_everywhere(path: str) -> tuple[int, list[tuple[int, str]]]:
    """Interrupt a save at each event; return how many were told, and what was locked after one."""
    module._BUSY_TIMEOUT_S = 0.05  # a lock left behind is an error soon
    at, ended, locked = 0, 0, []
    struck = True
    while struck:
        at += 1
        with open_store(path) as store:
            # The error is kept meanwhile, and with it all that it refers to: as in a `finally`.
            struck, error = _save(store, at, at)
            ended += isinstance(error, KeyboardInterrupt)
            store._hurried = True  # it waits for no lock that was left behind
            try:
                store.save_configurations([_made(10**6 + at)])
            except DatabaseError as failure:
                locked.append((at, str(failure)))
    return ended, locked


@pytest.mark.slow
def test_what_tidies_up_waits_for_no_interrupted_save(tmp_path: Path) -> None:
    """In a process of its own: an event is raised where no signal is, in `Lock.__enter__` too."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        path = str(tmp_path / "opdb.sqlite")
        ended, locked = processes.submit(_strike_everywhere, path).result()
    assert ended > 100, "most that strikes is told"
    assert locked == []
