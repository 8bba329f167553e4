"""A model that asks whether it is captured, from harvest to predict, on the processor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.predict.predictor import Answer, predictor_for
from opdb.records import Call, Configuration, Mode, Workload
from opdb.store import Store, open_store
from tests import published
from tests.cli.conftest import Opdb
from tests.harvest import captured_models

pytestmark = pytest.mark.usefixtures("short")

CAUSAL = captured_models.path("causal")
GRAPH = ("--mode", "graph", "--json", "--no-estimates")


def test_a_captured_model_is_predicted_from_what_it_calls_then(opdb: Opdb, tmp_path: Path) -> None:
    [told] = opdb.json("harvest", CAUSAL)
    captured = told["captured"]
    assert captured["calls"] == told["calls"] + 4 and captured["unsupported"] == {}
    assert captured["by_kind"]["arange"] == {"calls": 1, "configurations": 1}
    assert "arange" not in told["by_kind"] and told["captured_failure"] is None
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    status = opdb.json("show")
    assert [each["model"] for each in opdb.json("show", "workloads")] == [CAUSAL]
    assert status["devices"][0]["pending"] == {}
    eager = opdb.json("predict", CAUSAL)
    graph = json.loads(opdb("predict", CAUSAL, *GRAPH).out)
    assert eager["coverage"]["calls"] == graph["coverage"]["calls"] == 1
    assert not [note for note in eager["notes"] if "captured" in note]
    assert [note for note in graph["notes"] if "asks whether it is being captured" in note]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [plain], [otherwise] = store.workloads(), store.workloads(captured=True)
    assert otherwise.model_key == plain.key


def test_harvest_says_why_it_is_not_known(opdb: Opdb, tmp_path: Path) -> None:
    name = captured_models.path("fails_captured")
    ran = opdb("harvest", name)
    assert ran.status == 0
    [line] = [line for line in ran.err.splitlines() if "asks whether" in line]
    assert name in line and "not in a graph" in line
    [told] = opdb.json("harvest", name)
    assert told["captured"] is None and "not in a graph" in told["captured_failure"]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert len(store.workloads()) == 1 and store.workloads(captured=True) == []


RELUS = 20
"""How often more the model calls its first ReLU while it is captured."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(published.copy_to(tmp_path / "opdb.sqlite"))) as opened:
        yield opened


@pytest.fixture
def plain(store: Store) -> Workload:
    [found] = store.workloads("resnet50", batch_size=1)
    return found


@pytest.fixture
def captured(store: Store, plain: Workload) -> Workload:
    """ResNet-50, which while captured calls a measured ReLU more often; saved beside it."""
    found = replace(plain, calls=(*plain.calls, *[relu_of(plain)] * RELUS), captured=True)
    store.save_workload(plain, found)
    return found


def relu_of(workload: Workload) -> Call:
    return next(call for call in workload.calls if call.configuration.kind == "relu")


def answer(store: Store, workload: Workload, mode: Mode) -> Answer:
    return predictor_for(store, None, estimates=False).answer(workload, mode)


def notes(of: Answer) -> list[str]:
    return [note for note in of.prediction.notes if "captured" in note]


def test_as_a_cuda_graph_what_it_calls_while_captured_is_summed(
    store: Store, plain: Workload
) -> None:
    before = {mode: answer(store, plain, mode) for mode in ("eager", "graph")}
    assert not notes(before["graph"])
    otherwise = replace(plain, calls=(*plain.calls, *[relu_of(plain)] * RELUS), captured=True)
    store.save_workload(plain, otherwise)
    eager, graph = answer(store, plain, "eager"), answer(store, plain, "graph")
    assert eager == before["eager"] and not notes(eager)
    assert graph.prediction.workload == otherwise
    assert graph.prediction.coverage_calls == 1 and graph.prediction.missing == ()
    times = [each.prediction.time_s for each in (graph, before["graph"])]
    assert times[0] is not None and times[1] is not None and times[0] > times[1]
    assert graph.measured == before["graph"].measured is not None, "runs are the model's"
    [said] = notes(graph)
    assert said.startswith("resnet50 asks whether it is being captured")


def test_what_it_calls_then_alone_is_missing_until_it_is_benched(
    store: Store, plain: Workload
) -> None:
    call = relu_of(plain).configuration
    new = Configuration("tanh", inputs=call.inputs)
    store.save_workload(
        plain, replace(plain, calls=(*plain.calls, Call(new, "function")), captured=True)
    )
    assert [m.configuration for m in answer(store, plain, "graph").prediction.missing] == [new]
    assert answer(store, plain, "eager").prediction.missing == ()
    assert store.standing(published.DEVICE).pending["tanh"] == 1


def test_runs_are_held_against_what_they_called(
    store: Store, plain: Workload, captured: Workload
) -> None:
    used = predictor_for(store, None, estimates=False)
    answers = used.answers(["resnet50"], ["eager", "graph"])
    called = {
        (each.prediction.mode, each.prediction.workload.captured)
        for each in answers
        if each.prediction.workload.model_key == plain.key
    }
    assert called == {("eager", False), ("graph", True)}
    runs = [(w, run) for w, run in used.runs(["resnet50"]) if w.model_key == plain.key]
    assert {run.mode for _, run in runs} == {"eager", "graph"}
    for workload, run in runs:
        launches = used.launches(workload, run)
        assert launches is not None and not launches.model
        assert sum(launches.operators.values()) == (RELUS if run.mode == "graph" else 0)
    measured = [w for w, _ in used.measured_workloads("graph") if w.model_key == plain.key]
    assert measured == [captured]
