"""A model that asks whether it is captured, from harvest to predict, on the processor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb
from tests.harvest import captured_models

pytestmark = pytest.mark.usefixtures("short")

CAUSAL = captured_models.path("causal")
GRAPH = ("--mode", "graph", "--json", "--no-estimates")


def test_a_captured_model_is_predicted_from_what_it_calls_then(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb("harvest", CAUSAL, "--json")
    assert ran.status == 0, ran.err
    [told] = json.loads(ran.out)
    captured = told["captured"]
    assert captured["calls"] == told["calls"] + 4 and captured["unsupported"] == {}
    assert captured["by_kind"]["arange"] == {"calls": 1, "configurations": 1}
    assert "arange" not in told["by_kind"] and told["captured_failure"] is None
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    status = json.loads(opdb("show", "--json").out)
    assert [each["model"] for each in status["workloads"]] == [CAUSAL]
    assert status["devices"][0]["pending"] == {}
    eager = json.loads(opdb("predict", CAUSAL, "--json").out)
    graph = json.loads(opdb("predict", CAUSAL, *GRAPH).out)
    assert eager["coverage"]["calls"] == graph["coverage"]["calls"] == 1
    assert not [note for note in eager["notes"] if "captured" in note]
    assert [note for note in graph["notes"] if "asks whether it is being captured" in note]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [plain], [otherwise] = store.workloads(), store.captured_workloads()
    assert otherwise.model_key == plain.key


def test_what_it_calls_then_is_benched_as_any_other(opdb: Opdb) -> None:
    assert opdb("harvest", CAUSAL, "--quiet").status == 0
    assert opdb("bench", "linear", "chunk", "--device", "cpu", "--quiet").status == 0
    [device] = json.loads(opdb("show", "--json").out)["devices"]
    assert device["pending"]["arange"] == 1
    missing = json.loads(opdb("predict", CAUSAL, *GRAPH).out)["missing"]
    assert "arange" in {each["kind"] for each in missing}
    missing = json.loads(opdb("predict", CAUSAL, "--json", "--no-estimates").out)["missing"]
    assert "arange" not in {each["kind"] for each in missing}


def test_harvest_says_it(opdb: Opdb) -> None:
    ran = opdb("harvest", CAUSAL, "--quiet")
    [line] = [line for line in ran.out.splitlines() if "while it is captured" in line]
    assert line.startswith(f"{CAUSAL} batch 2 float32 6x16: ")
    assert "captured" not in opdb("harvest", "mlp", "--quiet").out


def test_harvest_says_why_it_is_not_known(opdb: Opdb, tmp_path: Path) -> None:
    name = captured_models.path("fails_captured")
    ran = opdb("harvest", name)
    assert ran.status == 0
    [line] = [line for line in ran.err.splitlines() if "asks whether" in line]
    assert name in line and "not in a graph" in line
    [told] = json.loads(opdb("harvest", name, "--json").out)
    assert told["captured"] is None and "not in a graph" in told["captured_failure"]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert len(store.workloads()) == 1 and store.captured_workloads() == []


def test_measure_and_modes_do_not_pass_over_it(opdb: Opdb) -> None:
    name = captured_models.path("fails_captured")
    for command in (("measure", name, "--repeats", 1), ("modes", name, "--modes", "eager")):
        # on a GPU its driver would answer, for the model asks torch in earnest
        ran = opdb(*command, "--device", "cpu")
        [line] = [line for line in ran.err.splitlines() if "asks whether" in line]
        assert name in line and "not in a graph" in line


def test_build_plans_what_the_mode_calls(opdb: Opdb) -> None:
    plan = ("build", CAUSAL, "--plan", "--json", "--device", "cpu")
    assert opdb("harvest", "mlp", "--quiet").status == 0  # a database to plan with
    kinds = {
        mode: {step["kind"] for step in json.loads(opdb(*plan, "--mode", mode).out)["steps"]}
        for mode in ("eager", "graph")
    }
    assert kinds["graph"] - kinds["eager"] >= {"arange"}
