"""Traces of predictions: their form, and that they add up to the predicted time and energy."""

from __future__ import annotations

import gzip
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import opdb
from opdb.commands.trace import DEVICE, HOST, Traced, trace
from tests import published
from tests.cli.conftest import Opdb

QUESTIONS: list[dict[str, Any]] = [
    {"model": "resnet50", "batch_size": 32, "mode": "graph"},
    {"model": "resnet50", "batch_size": 32, "mode": "eager"},
    {"model": "resnet50", "batch_size": 1, "mode": "eager"},
    {"model": "resnet50", "batch_size": 32, "mode": "eager", "phase": "training"},
    {"model": "resnet50", "batch_size": 32, "mode": "compile", "dtype": "bfloat16"},
    {"model": "distilbert", "batch_size": 1, "mode": "graph"},
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy: some models are harvested into it."""
    path = tmp_path_factory.mktemp("trace") / "opdb.sqlite"
    return str(shutil.copy(published.default_database(), path))


@pytest.fixture(
    scope="module", params=QUESTIONS, ids=lambda asked: " ".join(map(str, asked.values()))
)
def traced(request: pytest.FixtureRequest, db: str) -> Traced:
    return opdb.trace(**request.param, db=db)


def on(trace: Any, track: dict[str, int], phase: str = "X") -> list[Any]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == phase and track == {"pid": event["pid"], "tid": event["tid"]}
    ]


def test_the_slices_of_the_device_add_up_to_the_time(traced: Traced) -> None:
    trace, predicted_s = traced.trace(), traced.predicted.time_s
    slices = on(trace, DEVICE)
    assert sum(each["dur"] for each in slices) * 1e-6 == pytest.approx(predicted_s, rel=1e-9)
    for before, after in pairwise(slices):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=1e-6)


def test_power_over_time_is_the_energy(traced: Traced) -> None:
    samples = on(traced.trace(), DEVICE, "C")
    energy_j = sum(
        before["args"]["W"] * (after["ts"] - before["ts"]) * 1e-6
        for before, after in pairwise(samples)
    )
    assert energy_j == pytest.approx(traced.predicted.energy_j, rel=1e-9)
    kernels = [each for each in on(traced.trace(), DEVICE) if each["cat"] == "kernel"]
    waits_s = traced.predicted.time_s - sum(each["dur"] for each in kernels) * 1e-6
    base_w = traced.schedule.base_power_w
    assert base_w is not None
    together_j = sum(each["args"]["energy_j"] for each in kernels) + base_w * waits_s
    assert together_j == pytest.approx(traced.predicted.energy_j, rel=1e-9)


def test_each_slice_has_its_cost_and_its_launch(traced: Traced) -> None:
    trace, found = traced.trace(), traced.predicted.prediction
    issued = {each["args"]["correlation"]: each for each in on(trace, HOST)}
    assert bool(issued) == (found.mode != "graph")
    kernels = [each for each in on(trace, DEVICE) if each["cat"] == "kernel"]
    assert 0 < len(kernels) <= len(found.workload.calls)
    for kernel in kernels:
        args = kernel["args"]
        low, high = args["time_interval_s"]
        assert low <= args["time_s"] <= high
        assert kernel["dur"] * 1e-6 == pytest.approx(args["time_s"] + args["transition_s"])
        assert args["status"] == "measured" and args["flops"] >= 0 and args["bytes"] >= 0
        assert args["power_w"] * kernel["dur"] * 1e-6 == pytest.approx(args["energy_j"])
        if issued:
            launch = issued[args["correlation"]]
            assert launch["name"] == kernel["name"]
            assert launch["ts"] + launch["dur"] <= kernel["ts"] + 1e-6
    arrows = [{e["id"] for e in trace["traceEvents"] if e["ph"] == phase} for phase in "sf"]
    assert (
        arrows[0] == arrows[1] == ({k["args"]["correlation"] for k in kernels} if issued else set())
    )


def test_the_command_writes_the_trace_and_says_what_is_in_it(opdb: Opdb, db: str) -> None:
    asked = ("trace", "resnet50", "-b", 32, "--mode", "graph", "--db", db)
    ran = opdb(*asked, "-o", "t.json")
    assert ran.status == 0 and "written: t.json" in ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[2:]] == ["time", "energy", "power"]
    found = trace("resnet50", batch_size=32, mode="graph", db=db)
    assert Path("t.json").read_bytes() == found.to_bytes()
    assert opdb(*asked, "-o", "t.json.gz", "-q").status == opdb(*asked, "-q").status == 0
    assert gzip.decompress(Path("t.json.gz").read_bytes()) == found.to_bytes()
    assert Path("trace.json").read_bytes() == found.to_bytes()


@pytest.mark.filterwarnings("ignore")
def test_the_breakdown_of_hta_is_the_predictions(tmp_path: Path) -> None:
    """Meta's Holistic Trace Analysis reads it as a profile, rounding to whole microseconds."""
    from hta.trace_analysis import TraceAnalysis

    found = opdb.trace(
        "resnet50", batch_size=32, mode="eager", db=str(published.default_database())
    )
    path = tmp_path / "trace.json"
    path.write_bytes(found.to_bytes())
    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(tmp_path))
    [row] = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    works = [each["dur"] for each in on(found.trace(), DEVICE) if each["cat"] == "kernel"]
    assert row["compute_time(us)"] == pytest.approx(sum(works), abs=len(works))
    whole_s = found.predicted.time_s
    assert row["kernel_time(us)"] == pytest.approx((whole_s or 0) * 1e6, rel=0.05)
