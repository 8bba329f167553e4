"""Annotated profiles: real profiles of torch's profiler, whose CPU work stands in for a GPU's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import opdb
from opdb.errors import InputError
from opdb.models import ModelRequest, load
from tests import published
from tests.cli.conftest import Opdb
from tests.cli.conftest import opdb as opdb_run  # noqa: F401
from tests.paths import ROOT

PROFILES = ROOT / "tests" / "data"

SPAN_US = 10.0


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


def profiled(folder: Path, request: ModelRequest) -> Path:
    loaded = load(request, device="cpu")
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        loaded.module.eval()(*loaded.args, **loaded.kwargs)
    path = folder / "cpu.json"
    seen.export_chrome_trace(str(path))
    return path


def with_kernels(path: Path, names: frozenset[str]) -> Path:
    """Add a kernel to each operator of these names, linked as the profiler links a GPU's."""
    trace: Any = json.loads(path.read_text())
    operators = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
    launched = [e for e in operators if e["name"] in names]
    for number, event in enumerate(sorted(launched, key=lambda e: e["ts"])):
        args = {"External id": event["args"]["External id"], "correlation": number}
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "args": args}
        trace["traceEvents"].append({**kernel, "ts": number * SPAN_US, "dur": SPAN_US})
    found = path.with_name("gpu.json.gz")
    found.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return found


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("annotate")
    made = profiled(folder, ModelRequest("resnet50", source="torchvision", batch_size=1))
    return with_kernels(made, frozenset(["aten::convolution", "aten::batch_norm", "aten::relu_"]))


@pytest.mark.parametrize(
    ("profile", "measured_j"), [("resnet50", 11.34), ("bert_base", 12.68)], ids=["CNN", "BERT"]
)
def test_a_gpus_profile_comes_to_the_energy_that_was_measured(
    profile: str, measured_j: float, db: str
) -> None:
    """Three passes each on an H200, by the costs of another board (docs/trace.md has all)."""
    path = PROFILES / f"h200_profile_{profile}.json.gz"
    found = opdb.annotate(path, board="GPU-f89dfe68", db=db)
    assert found.share >= 0.95
    assert found.energy_j / 3 == pytest.approx(measured_j, rel=0.03)


def test_a_profiles_operators_are_the_predictions(resnet: Path, db: str) -> None:
    """Each name has the dynamic energy that a prediction for the same board adds up."""
    found = opdb.annotate(resnet, db=db)
    assert found.share == pytest.approx(1.0) and not found.annotation.unknown
    assert found.annotation.idle_s == pytest.approx(0.0)
    calls = {row.name: row.calls for row in found.operators}
    assert calls == {"aten::conv2d": 53, "aten::batch_norm": 53, "aten::relu_": 49}
    conditions = opdb.Conditions(board=found.board, estimates=False)
    predicted = opdb.predict("resnet50", batch_size=1, conditions=conditions, db=db).prediction
    keys = {call.configuration.key for call in predicted.workload.calls}
    for each in found.annotation.known:
        assert keys & {*each.configurations}, each.event


def test_the_energies_of_kernels_add_up(resnet: Path, db: str) -> None:
    found = opdb.annotate(resnet, db=db)
    trace: Any = found.trace()
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    given = [e["args"]["opdb_energy_j"] for e in kernels]
    assert sum(given) == pytest.approx(found.known_energy_j) == pytest.approx(found.energy_j)
    for kernel in kernels:
        low, high = kernel["args"]["opdb_energy_interval_j"]
        assert low <= kernel["args"]["opdb_energy_j"] <= high
    assert trace["opdb"]["known_share"] == pytest.approx(1.0)


def test_what_is_not_known_is_counted_and_not_guessed(tmp_path: Path, db: str) -> None:
    made = profiled(tmp_path, ModelRequest("mlp", batch_size=9))
    found = opdb.annotate(with_kernels(made, frozenset(["aten::addmm"])), db=db)
    assert found.share == 0.0 and found.known_energy_j == 0.0
    assert set(found.annotation.unknown) == {"aten::addmm"}
    assert "at least" in str(found)


def test_work_of_no_known_call_is_known_by_its_kernels(tmp_path: Path, db: str) -> None:
    """Kernels of a graph's replay have no operator: names and times are those the board recorded.

    At the recorded time of one configuration its energy lies in the interval that is given.
    """
    with opdb.open_store(db) as store:
        predictor = opdb.Predictor(store, opdb.choose_device(store, None))
        board = predictor.most_measured(["conv2d"])
        configurations = store.configurations()
        costs = predictor.costs_on(board, configurations)
        launched = store.kernels(board)
    chosen = [
        (next(iter(launched[each.key])), cost.time_s.mean, cost.dynamic_energy_j)
        for each in configurations
        if each.kind == "conv2d"
        and sum(launched.get(each.key, {}).values()) == 1
        and (cost := costs.get(each.key)) is not None
        and cost.time_s is not None
        and cost.dynamic_energy_j is not None
    ][:20]
    assert len(chosen) == 20
    made = json.loads(profiled(tmp_path, ModelRequest("mlp")).read_text())
    at_us = 0.0
    for name, time_s, _ in chosen:
        kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "args": {}}
        made["traceEvents"].append({**kernel, "ts": at_us, "dur": time_s * 1e6})
        at_us += time_s * 1e6
    other = {"ph": "X", "cat": "kernel", "name": "no such kernel", "pid": 0, "tid": 7, "args": {}}
    made["traceEvents"].append({**other, "ts": at_us, "dur": at_us / 9})
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(made))
    found = opdb.annotate(path, board=board, db=db)
    assert found.share == pytest.approx(0.9)
    assert {each.by for each in found.annotation.known} == {"kernels"}
    assert set(found.annotation.unknown) == {"no such kernel"}
    for (_, _, energy_j), known in zip(chosen, found.annotation.known, strict=True):
        assert known.dynamic_j.low is not None and known.dynamic_j.high is not None
        assert known.dynamic_j.low <= energy_j.mean <= known.dynamic_j.high
    assert found.to_dict()["known_share_by_kernels"] == pytest.approx(0.9)
    assert "90.0 % of device time is known by kernel names alone" in str(found)


def test_the_command_writes_and_refuses(
    opdb_run: Opdb,  # noqa: F811
    resnet: Path,
    db: str,
    tmp_path: Path,
) -> None:
    ran = opdb_run("annotate", resnet, "-o", "out.json.gz", "--json", "--db", db)
    assert ran.status == 0 and json.loads(ran.out)["known_share"] == pytest.approx(1.0)
    assert "opdb" in json.loads(gzip.decompress(Path("out.json.gz").read_bytes()))
    (tmp_path / "text").write_text("no json")
    bare = profiled(tmp_path, ModelRequest("mlp"))
    for path, message in (
        (tmp_path / "none", "cannot be read"),
        (tmp_path / "text", "no trace of torch's profiler"),
        (bare, "holds no work of a GPU"),
    ):
        ran = opdb_run("annotate", path, "--db", db)
        assert ran.status == 2 and message in ran.err and "Traceback" not in ran.err


def test_a_profile_without_shapes_says_how_to_make_one(tmp_path: Path, db: str) -> None:
    trace = {"traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 1, "args": {}}
    ]}  # fmt: skip
    path = tmp_path / "p.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match="record_shapes=True"):
        opdb.annotate(path, db=db)
