"""Which runs of models a question lacks, and how they are made and claimed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.errors import ClaimLostError
from opdb.progress import Progress
from opdb.runs import ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import RunState, Store, open_store
from opdb.store.claims import Claims, held, this_worker
from opdb.workers import runs_made
from tests.store import samples
from tests.store.conftest import fill


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
        store.save_campaign(samples.campaign("other", "GPU-2"))
        run(store, "run-2", "campaign-1", mode="graph")
        run(store, "run-3", "campaign-1", setting={"tf32": True}, facts={})
        run(store, "run-4", "low")
        run(store, "run-5", "other")
        yield store


def test_runs_count_by_board_device_and_setting(stored: Store) -> None:
    def counted(**rules: Any) -> list[str]:
        boards = rules.pop("boards", ("GPU-1", "GPU-2"))
        policy = ModelPolicy(("nvidia-h200",), boards, **rules)
        return sorted(found.id for found in policy.runs(stored))

    assert counted() == ["run-1", "run-2", "run-5"]
    assert counted(boards=("GPU-2",)) == ["run-5"]
    assert counted(setting={"tf32": True}) == ["run-3"]
    assert counted(ignored=frozenset({"run-1"})) == ["run-2", "run-5"]
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
        patch.setattr("opdb.store.claims.this_worker", lambda: f"{place}:{2**22 + 1}")
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


class Making:
    """Makes runs in no time, and notes what happens."""

    def __init__(self, store: Store, lost: Collection[str] = ()) -> None:
        self.store, self.lost, self.made = store, lost, list[str]()
        self.claims = Claims(store, "runs nvidia-h200", "GPU-1")

    def of(self, specs: Sequence[ModelRunSpec], **how: Any) -> Iterator[tuple[ModelRunSpec, Any]]:
        return runs_made(self.store, self.claims, POLICY, specs, self.make, Progress(), **how)

    def make(self, spec: ModelRunSpec) -> Any:
        assert self.claims.has(spec.key)
        self.made.append(spec.request.name)
        if spec.key in self.lost:
            raise ClaimLostError("another took it over")
        save(self.store, spec)
        return f"the run of {spec.request.name}"


def test_each_run_is_made_once_and_told_as_it_is_stored(store: Store) -> None:
    specs, making = specs_of(store, "a", "b", "c"), Making(store)
    told = []
    for spec, run in making.of(specs):
        told.append((spec.request.name, run))
        assert [claim.task for claim in held(store)] == [spec.key], "no other is claimed yet"
    assert told == [(name, f"the run of {name}") for name in "abc"] and held(store) == []
    assert list(Making(store).of(specs)) == []
    assert [spec for spec, _ in Making(store).of(specs[:1], again=True)] == specs[:1]
