"""The published runs, and the names of claims: processes of other versions share them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import algorithm_named
from opdb.runs import ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import RunState, Store, open_store
from opdb.store.claims import Claims, held, this_worker
from opdb.studies import modes
from opdb.studies.sweep.request import SweepPolicy, SweepSpec
from opdb.studies.train.file import Combination
from opdb.studies.train.rows import BackendDevice, MatrixPolicy, TrainingSpec
from tests import published
from tests.store import samples
from tests.store.conftest import fill


def test_claims_name_the_study_and_the_run() -> None:
    sweep = SweepSpec(ModelSpec("m"), "key", 224, algorithm_named("fft tiling"), "graph")
    assert (SweepPolicy(()).scope("gpu"), sweep.key) == ("sweep gpu", "sweep graph fft_tiling key")
    training = TrainingSpec(Combination("mlp", 8), BackendDevice("cpu", "x86"))
    assert MatrixPolicy(()).scope("x86") == "train x86"
    assert training.key == "matrix mlp-b8-fp32-cpu"
    boards = ("GPU-2", "GPU-1")
    run = ModelRunSpec(ModelSpec("m"), "key", "eager", boards)
    assert run.key == ModelRunSpec(ModelSpec("m"), "key", "eager", boards[::-1]).key
    assert ModelPolicy((), ()).scope("gpu") == "runs gpu"


def test_the_last_good_run_counts_else_the_last() -> None:
    """Of runs made one after the other, of four models; a fifth was never run."""
    specs = {name: ModelRunSpec(ModelSpec("m"), name, "eager", ("GPU-1",)) for name in "abcde"}
    made = (
        ("a", "ok"),
        ("a", "error"),
        ("b", "unsupported"),
        ("b", "out_of_memory"),
        ("c", "error"),
        ("c", "unsupported"),
        ("d", "error"),
    )
    runs = [
        RunState(f"{n}", name, "eager", {}, outcome, None, 1.0, {}, "c", "gpu", "GPU-1")  # type: ignore[arg-type]
        for n, (name, outcome) in enumerate(made)
    ]
    table = RunTable(ModelPolicy(("gpu",), ("GPU-1",)), runs)
    states = {name: table.state(spec) for name, spec in specs.items()}
    assert states == {
        "a": "done",
        "b": "out of memory",
        "c": "unsupported",
        "d": "failed",
        "e": "left",
    }
    counted = table.run(specs["a"])
    assert counted is not None and counted.id == "0" and table.run(specs["e"]) is None
    every = list(specs.values())
    assert table.pending(every) == [specs["e"]]
    assert table.pending(every, retry=True) == [specs[name] for name in "bcde"]
    assert table.pending(every, again=True) == every
    claimed = RunTable(ModelPolicy(("gpu",), ("GPU-1",)), runs, {specs["a"].key, specs["e"].key})
    assert [claimed.state(specs[name]) for name in "ae"] == ["running", "running"]
    assert claimed.pending(every, retry=True, again=True) == [specs[name] for name in "bcd"]
    assert claimed.pending(every) == []


def test_what_this_machine_cannot_run_is_left_to_others() -> None:
    elsewhere = TrainingSpec(Combination("mlp", 8), BackendDevice("cuda", why_not="no GPU here"))
    table = RunTable(MatrixPolicy(()), [])
    assert table.state(elsewhere) == "not here"
    assert table.pending([elsewhere], retry=True, again=True) == []


def test_each_question_finds_its_runs_among_the_published_ones() -> None:
    with open_store(str(published.default_database()), create=False) as store:
        counts: Counter[str] = Counter()
        for board in store.boards():
            campaigns = store.campaigns(board.device, board=board.uuid)
            policy = ModelPolicy((board.device,), (board.uuid,))
            table = RunTable(policy, policy.runs(store))
            runs = store.model_runs(device=board.device, board=board.uuid)
            for run in runs:
                spec = ModelRunSpec(ModelSpec("m"), run.workload, run.mode, policy.boards)
                counts[table.state(spec)] += 1
                assert table.pending([spec], retry=True) == (
                    [] if table.state(spec) == "done" else [spec]
                )
            for torch in {campaign.environment.get("torch") for campaign in campaigns}:
                ids = {c.id for c in campaigns if c.environment.get("torch") == torch}
                counted = modes.policy(board, torch).runs(store)
                assert {run.id for run in counted} == {r.id for r in runs if r.campaign in ids}
        assert set(counts) >= {"done", "unsupported"}


def run(store: Store, name: str, campaign: str, **changes: object) -> None:
    """Store a run of the workload of the samples."""
    made = samples.model_run(samples.workload(), name)
    store.save_model_run(replace(made, campaign=campaign, **changes))  # type: ignore[arg-type]


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Store]:
    """Runs on two boards, of which one was also measured under a lower power limit."""
    lowered = replace(samples.DEVICE, slug="nvidia-h200-500w", power_limit_w=500.0)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        fill(store)
        store.save_campaign(samples.campaign("low", "GPU-1", lowered))
        other = samples.campaign("other", "GPU-2")
        store.save_campaign(replace(other, environment={"torch": "2.14.0"}))
        run(store, "run-2", "campaign-1", mode="graph")
        run(store, "run-3", "campaign-1", setting={"tf32": True}, facts={})
        run(store, "run-4", "low")
        run(store, "run-5", "other", facts={"compile_time_s": 9.0})
        yield store


def test_runs_count_by_board_device_setting_facts_and_environment(stored: Store) -> None:
    def counted(*, spec: ModelRunSpec | None = None, **rules: Any) -> list[str]:
        boards = rules.pop("boards", ("GPU-1", "GPU-2"))
        policy = ModelPolicy(("nvidia-h200",), boards, **rules)
        return sorted(found.id for found in policy.runs(stored, spec))

    assert counted() == ["run-1", "run-2", "run-5"]
    assert counted(boards=("GPU-2",)) == ["run-5"]
    assert counted(setting={"tf32": True}) == ["run-3"]
    assert counted(facts={"compile_time_s": 9.0}) == ["run-5"]
    assert counted(facts={"never_said": None}) == ["run-1", "run-2", "run-5"]
    assert counted(environment={"torch": "2.15.0", "cudnn": None}) == ["run-1", "run-2"]
    assert counted(environment={"cudnn": None}) == ["run-1", "run-2", "run-5"]
    assert counted(ignored=frozenset({"run-1"})) == ["run-2", "run-5"]
    key = samples.workload().key
    spec = ModelRunSpec(ModelSpec("m"), key, "graph", ("GPU-1", "GPU-2"))
    assert counted(spec=spec) == ["run-2"]
    assert counted(spec=replace(spec, workload="another")) == []
    low = ModelPolicy(("nvidia-h200-500w",), ("GPU-1",))
    assert [found.id for found in low.runs(stored)] == ["run-4"]
    anew = ModelPolicy(("nvidia-h200",), ("GPU-1",)).without_stored(stored)
    assert anew.runs(stored) == [] and anew.boards == ("GPU-1",)
    run(stored, "run-6", "campaign-1")
    assert [found.id for found in anew.runs(stored)] == ["run-6"]


def test_a_table_is_read_with_the_claims_of_those_alive(
    stored: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = ModelPolicy(("nvidia-h200", "a-cpu"), ("GPU-1",))
    spec = ModelRunSpec(ModelSpec("m"), samples.workload().key, "eager", ("GPU-1",))
    specs = {mode: replace(spec, mode=mode) for mode in ("eager", "graph", "compile", "trace")}
    assert RunTable.read(stored, policy).state(spec) == "done"
    with Claims(stored, "runs nvidia-h200", "GPU-1") as one, Claims(stored, "runs x", "x") as two:
        assert one.take(spec.key) and two.take(specs["graph"].key)
        assert RunTable.read(stored, policy).state(spec) == "running"
        assert RunTable.read(stored, policy).state(specs["graph"]) == "done", "claimed elsewhere"
    with monkeypatch.context() as patch:
        place = this_worker().partition(":")[0]
        patch.setattr("opdb.store.claims.this_worker", lambda: f"{place}:1:0.00")
        dead = Claims(stored, "runs a-cpu", "GPU-1")
        patch.setattr("opdb.store.claims.this_worker", lambda: "0123456789abcdef:7:1.00")
        patch.setattr("opdb.store.claims.LEASE_S", 0.5)
        ending = Claims(stored, "runs a-cpu", "GPU-1")
        assert dead.take(specs["compile"].key) and ending.take(specs["trace"].key)
        table = RunTable.read(stored, policy)
        assert [table.state(specs[mode]) for mode in ("compile", "trace")] == ["left", "running"]
        assert {each.task for each in held(stored)} == {specs["trace"].key}
        time.sleep(0.5)
        assert RunTable.read(stored, policy).state(specs["trace"]) == "left", "its lease is over"


def test_what_answers_no_spec_is_the_run_of_none() -> None:
    class Picky(ModelPolicy):
        def run_identity(self, run: RunState) -> Hashable:
            return None if run.mode == "eager" else super().run_identity(run)

        def identity(self, spec: ModelRunSpec) -> Hashable:
            return None if spec.mode == "eager" else super().identity(spec)

    runs = [
        RunState(mode, "w", mode, {}, "ok", None, 1.0, {}, "c", "gpu", "GPU-1")
        for mode in ("eager", "graph")
    ]
    specs = [ModelRunSpec(ModelSpec("m"), "w", mode, ("GPU-1",)) for mode in ("eager", "graph")]
    table = RunTable(Picky(("gpu",), ("GPU-1",)), runs)
    assert [table.state(spec) for spec in specs] == ["left", "done"]
    assert RunTable(Picky(("gpu",), ("GPU-1",)), []).state(specs[0]) == "left"
