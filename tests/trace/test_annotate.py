"""Annotated profiles: real profiles of torch's profiler, whose CPU work stands in for a GPU's."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import opdb
from opdb.errors import InputError
from opdb.models import load
from opdb.spec import ModelSpec
from opdb.studies.annotate import AnnotatedProfile, Index, KernelIndex, read_profile
from opdb.studies.annotate import find_energies as annotate_profile
from tests import published
from tests.cli.conftest import Opdb
from tests.paths import ROOT

PROFILES = ROOT / "tests" / "data"

SPAN_US = 10.0


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


def profiled(folder: Path, request: ModelSpec) -> Path:
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
    made = profiled(folder, ModelSpec("resnet50", source="torchvision", batch_size=1))
    return with_kernels(made, frozenset(["aten::convolution", "aten::batch_norm", "aten::relu_"]))


@pytest.mark.parametrize(
    ("profile", "measured_j"), [("resnet50", 11.34), ("bert_base", 12.68)], ids=["CNN", "BERT"]
)
def test_a_gpus_profile_comes_to_the_energy_that_was_measured(
    profile: str, measured_j: float, db: str
) -> None:
    """Three passes each on an H200, by the costs of another board (docs/studies.md has all)."""
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


@pytest.mark.slow
def test_work_of_no_known_call_is_known_by_its_kernels(tmp_path: Path, db: str) -> None:
    """Kernels of a graph's replay have no operator: names and times are those the board recorded.

    At the recorded time of one configuration its energy lies in the interval that is given.
    """
    with opdb.open_store(db) as store:
        predictor = opdb.Predictor(store, opdb.choose_device(store, None))
        board = next(iter(predictor.measuring(store.configurations(["conv2d"]))))
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
    made = json.loads(profiled(tmp_path, ModelSpec("mlp")).read_text())
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
    made["traceEvents"] = [e for e in made["traceEvents"] if e.get("cat") == "kernel"]
    path.write_text(json.dumps(made))
    bare = opdb.annotate(path, board=board, db=db)
    assert bare.energy_j == pytest.approx(found.energy_j), "names of kernels need no shapes"
    assert any("record_shapes=True" in note for note in bare.notes)


def test_the_command_writes_and_refuses(opdb: Opdb, resnet: Path, db: str, tmp_path: Path) -> None:
    ran = opdb("annotate", resnet, "-o", "out.json.gz", "--json", "--db", db)
    assert ran.status == 0 and json.loads(ran.out)["known_share"] == pytest.approx(1.0)
    assert "opdb" in json.loads(gzip.decompress(Path("out.json.gz").read_bytes()))
    (tmp_path / "text").write_text("[]")
    bare = profiled(tmp_path, ModelSpec("mlp"))
    for path, message in (
        (tmp_path / "none", "no such file"),
        (tmp_path / "text", "no trace of torch's profiler"),
        (bare, "holds no work of a GPU"),
    ):
        ran = opdb("annotate", path, "--db", db)
        assert ran.status == 2 and message in ran.err and "Traceback" not in ran.err


# Profiles made by hand: calls of one linear layer that the published set has, on streams and GPUs

BOARD = "GPU-841ef24a"
SEQUENCE_J = 0.1791
"""Two of the layer's calls, one after the other for 100 us each, on this board."""

BASE_W = 123.75


def call(number: int) -> list[dict[str, Any]]:
    """Return the events of an operator's call on the host: the operator, and its launch."""
    args = {
        "External id": number,
        "Concrete Inputs": ["", "", ""],
        "Input type": ["float", "float", "float"],
        "Input Strides": [[98304, 768, 1], [768, 1], [1]],
        "Input Dims": [[32, 128, 768], [768, 768], [768]],
    }
    on_host = {"ph": "X", "pid": 10, "tid": 1, "ts": 40.0 * number, "dur": 30.0}
    launch = {"External id": number, "correlation": 1000 + number}
    return [
        {**on_host, "cat": "cpu_op", "name": "aten::linear", "args": args},
        {**on_host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5.0, "args": launch},
    ]


def kernel(
    number: int, at_us: float, *, name: str = "gemm", us: float = 100.0, **args: Any
) -> dict[str, Any]:
    where = {"pid": args.get("device", 0), "tid": args.get("stream", 7), "ts": 1e6 + at_us}
    own = {"External id": number, "device": 0, "correlation": 1000 + number, **args}
    return {"ph": "X", "cat": "kernel", "name": name, **where, "dur": us, "args": own}


def written(folder: Path, events: list[dict[str, Any]], *gpus: str) -> Path:
    named = [{"id": number, "name": name} for number, name in enumerate(gpus or ["NVIDIA H200"])]
    path = folder / "profile.json"
    path.write_text(json.dumps({"deviceProperties": named, "traceEvents": events}, indent=1))
    return path


@pytest.fixture(scope="module")
def annotated(db: str) -> Callable[[Path], AnnotatedProfile]:
    """Annotate as `opdb.annotate` does from this board; the database is read once."""
    with opdb.open_store(db) as store:
        predictor = opdb.Predictor(store, opdb.choose_device(store, "nvidia-h200"))
        board = predictor.board(BOARD)
        base_w = predictor.base_power_w(board) or 0.0
        configurations = store.configurations()
        costs = predictor.costs_on(board, configurations)
        known = Index(configurations, costs), KernelIndex(store.kernels(board), costs)
    assert base_w == pytest.approx(BASE_W, rel=1e-3)

    def annotate(path: Path) -> AnnotatedProfile:
        profile = read_profile(path)
        found = annotate_profile(profile, *known, base_w)
        return AnnotatedProfile(profile, found, "nvidia-h200", board, is_own_device=True, notes=())

    return annotate


CALLS = [*call(1), *call(2)]
SEQUENCE = [*CALLS, kernel(1, 0.0), kernel(2, 100.0)]
NCCL = kernel(99, 0.0, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", us=200.0, stream=20)


@pytest.mark.parametrize(
    ("events", "energy_j", "idle_us"),
    [
        (SEQUENCE, SEQUENCE_J, 0.0),
        ([*CALLS, kernel(1, 0.0), kernel(2, 0.0, stream=20)], 0.1667, 0.0),
        ([*CALLS, kernel(1, 0.0), kernel(2, 50.0, stream=20)], 0.1729, 0.0),
        ([*CALLS, kernel(1, 0.0), kernel(2, 300.0, stream=20)], 0.2039, 200.0),
        ([*SEQUENCE, NCCL], SEQUENCE_J, 0.0),
    ],
    ids=["one after the other", "at once", "half at once", "apart", "beside NCCL"],
)
def test_base_power_counts_once_for_a_moment(
    tmp_path: Path,
    annotated: Callable[[Path], AnnotatedProfile],
    events: list[dict[str, Any]],
    energy_j: float,
    idle_us: float,
) -> None:
    """Base power from the first kernel to the last, and the dynamic energies of known kernels."""
    found = annotated(written(tmp_path, events))
    assert found.energy_j == pytest.approx(energy_j, rel=1e-3)
    assert found.annotation.idle_s == pytest.approx(idle_us * 1e-6)
    assert ("at least" in str(found)) == (NCCL in events), "a lower bound where one is unknown"
    given = [
        event["args"].get("opdb_energy_j", 0.0)
        for event in found.trace()["traceEvents"]
        if event["cat"] == "kernel"
    ]
    assert math.fsum(given) == pytest.approx(found.known_energy_j)
    if NCCL not in events:
        idle_j = BASE_W * idle_us * 1e-6
        assert found.energy_j == pytest.approx(found.known_energy_j + idle_j, rel=1e-4)


def test_a_profile_that_is_damaged_is_told_where(tmp_path: Path) -> None:
    path = written(tmp_path, SEQUENCE)
    whole = path.read_text()
    line = whole[: whole.index('"gemm"')].count("\n") + 1
    for text, message in (
        (
            whole.replace('"gemm"', '"C:\\work"', 1),
            rf"line {line}, column \d+: not valid JSON: Inv",
        ),
        (whole[: whole.index('"gemm"')], rf"line {line}, .*not valid JSON: .*; is it cut off\?"),
        (
            whole.replace('"dur": 100.0', '"dur": -1.0'),
            r"no trace of .*: event 'gemm': ts and dur are \(.*, -1.0\)",
        ),
        (whole.replace('"dur": 100.0', '"dur": 1e400'), "event 'gemm': ts and dur are .*inf"),
        (
            whole.replace('"traceEvents"', '"events"'),
            "no trace of torch's profiler in Chrome's JSON: 'traceEvents'",
        ),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_profile(path)
    path.write_bytes(gzip.compress(whole.encode())[:-20])
    with pytest.raises(InputError, match=r"profile.json: damaged, or cut off"):
        read_profile(path)
