"""The published runs, and the names of claims: processes of other versions share them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from opdb import workers
from opdb.bench.driver import DriverWork
from opdb.bench.model import AlikeRuns, ModelWork, RunOptions
from opdb.bench.session import detect
from opdb.errors import ClaimLostError
from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.progress import Progress
from opdb.runs import DriverOptions, ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import RunState, Store, open_store
from opdb.store.claims import Claims, held, this_worker
from opdb.workers import Crew, Make, Work
from tests.store import samples
from tests.store.conftest import fill
from tests.workers import short


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


POLICY = ModelPolicy((samples.DEVICE.slug,), ("GPU-1",))


@dataclass(frozen=True)
class Noting(Work[ModelRunSpec]):
    """Stores a run in no time, and notes what happens."""

    happened: list[Any] = field(default_factory=list)
    lost: frozenset[str] = frozenset()

    @contextmanager
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> Iterator[tuple[str, str, Make[ModelRunSpec]]]:
        self.happened.append((store, device, workers))

        def make(spec: ModelRunSpec, claims: Claims) -> Any:
            assert claims.has(spec.key)
            self.happened.append(spec.request.name)
            if spec.key in self.lost:
                raise ClaimLostError("another took it over")
            if spec.request.name == "unstored":
                return None
            save(store, spec)
            return f"the run of {spec.request.name}"

        yield samples.DEVICE.slug, "GPU-1", make


def save(store: Store, spec: ModelRunSpec, outcome: Any = "ok") -> None:
    stored = len(store.run_states())
    run = samples.model_run(samples.workload(spec.request.name), f"run {stored}")
    store.save_model_run(replace(run, outcome=outcome))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        opened.save_campaign(samples.campaign())
        yield opened


def specs_of(store: Store, *names: str) -> list[ModelRunSpec]:
    found = []
    for name in names:
        store.save_workload(workload := samples.workload(name))
        found.append(ModelRunSpec(ModelSpec(name), workload.key, "eager", ("GPU-1",)))
    return found


NOBODY = Progress()


def test_each_run_is_made_once_and_told_as_it_is_stored(store: Store, tmp_path: Path) -> None:
    specs = specs_of(store, "a", "b", "unstored", "c")
    work = Noting(POLICY)
    told = []
    for spec, run in work.run(store, specs, "cuda:3", NOBODY, crew=Crew(2, tmp_path)):
        told.append((spec.request.name, run))
        assert [claim.task for claim in held(store)] == [spec.key], "no other is claimed yet"
        assert [(claim.scope, claim.board) for claim in held(store)] == [
            ("runs nvidia-h200", "GPU-1")
        ]
    assert told == [(name, f"the run of {name}") for name in "abc"]
    assert work.happened == [(store, "cuda:3", 2), "a", "b", "unstored", "c"]
    assert held(store) == []
    again = Noting(POLICY)
    assert list(again.run(store, [*specs[:2], specs[3]], None, NOBODY)) == []
    assert again.happened == [(store, None, 1)]
    anew = Noting(POLICY, again=True)
    assert [spec for spec, _ in anew.run(store, specs[:1], None, NOBODY)] == specs[:1]


def test_the_work_ends_at_a_run_that_may_not_begin(store: Store) -> None:
    specs, work = specs_of(store, "a", "b", "c"), Noting(POLICY)
    made = work.run(store, specs, None, NOBODY, may_begin=lambda s: s.request.name == "a")
    assert [spec for spec, _ in made] == specs[:1] and work.happened[1:] == ["a"]
    assert held(store) == []


def of_another(store: Store, monkeypatch: pytest.MonkeyPatch, spec: ModelRunSpec) -> Claims:
    """Claim a run as a process of another machine does."""
    with monkeypatch.context() as patch:
        patch.setattr("opdb.store.claims.this_worker", lambda: "0123456789abcdef:7:1.00")
        claims = Claims(store, "runs nvidia-h200", "GPU-9")
    assert claims.take(spec.key)
    return claims


def test_the_runs_of_others_come_last_and_are_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = specs_of(store, "a", "b", "c", "d")
    others = [of_another(store, monkeypatch, spec) for spec in specs[:2]]
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            save(store, specs[0])
            others[0].give_back([specs[0].key])
        if len(waited) == 3:
            others[1].give_back([specs[1].key])

    monkeypatch.setattr("opdb.workers.time.sleep", sleep)
    work = Noting(POLICY)
    made = [spec for spec, _ in work.run(store, specs, None, NOBODY)]
    assert made == [specs[2], specs[3], specs[1]], "the other made the first"
    assert waited == [1.0, 1.0, 1.0]


QUICK = RunOptions(repeats=1)
SHORT = DriverOptions(warmup_iters=1, iters=2, repeats=1)


def serve(url: str, asked: Work[Any], specs: list[ModelRunSpec], both: Any, told: Any) -> None:
    """Make the runs at the same time as the other process; tell which were made here."""
    short.shorten()
    workers.LOOK_EVERY_S = 0.02
    with open_store(url, create=False) as store:
        both.wait()
        told.send([spec.key for spec, _ in asked.run(store, specs, "cpu", Progress())])


def question(name: str, store: Store) -> tuple[Work[Any], list[ModelRunSpec]]:
    board = detect("cpu").board
    devices, boards = (board.device,), (board.uuid,)
    phase: Any = "training" if name == "training" else "inference"
    requests = [checked(ModelSpec("mlp", batch_size=size, phase=phase)) for size in (1, 2)]
    workloads = [harvest(request) for request in requests]
    for workload in workloads:
        store.save_workload(workload)
    pairs = [(r, w.key) for r, w in zip(requests, workloads, strict=True)]
    if name == "training":
        specs: list[ModelRunSpec] = [ModelRunSpec(*pair, "eager", boards, SHORT) for pair in pairs]
        return DriverWork(ModelPolicy(devices, boards)), specs
    specs = [ModelRunSpec(*pair, "eager", boards) for pair in pairs]
    if name == "measure":
        policy = AlikeRuns(devices, boards, options=QUICK).without_stored(store)
        return ModelWork(policy, options=QUICK), specs
    return ModelWork(ModelPolicy(devices, boards), options=QUICK), specs


@pytest.mark.parametrize("name", ["measure", "training"])
def test_two_processes_make_each_run_once(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'opdb.sqlite'}"
    with open_store(url) as store:
        asked, specs = question(name, store)
        short.start_quickly()
        context = multiprocessing.get_context("forkserver")
        both = context.Barrier(2)
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        processes = [
            context.Process(target=serve, args=(url, asked, specs, both, there))
            for _, there in pipes
        ]
        for process in processes:
            process.start()
        for _, there in pipes:
            there.close()
        made = [key for here, _ in pipes for key in here.recv()]
        for process in processes:
            process.join()
        assert sorted(made) == sorted(spec.key for spec in specs)
        assert len(store.model_runs(setting=None)) == len(specs)
        assert {run.outcome for run in store.model_runs(setting=None)} == {"ok"}
        assert held(store) == []


def test_a_run_that_is_asked_for_anew_is_made_however_many_are_stored(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        asked, specs = question("build", store)
        again, _ = question("measure", store)
        assert asked.pending(store, specs) == again.pending(store, specs) == specs
        [(spec, run)] = asked.run(store, specs[:1], "cpu", Progress())
        assert asked.pending(store, specs) == specs[1:]
        assert again.pending(store, specs) == specs[1:], "made since it was asked for"
        assert question("measure", store)[0].pending(store, specs) == specs
        assert list(asked.run(store, specs, "cpu", Progress(), may_begin=lambda spec: False)) == []
        assert [spec.workload, "ok"] == [run.workload, run.outcome] and held(store) == []
