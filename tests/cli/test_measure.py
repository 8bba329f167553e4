"""`opdb measure` on the processor."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb

MLP = ("mlp", "--input-size", 16, "--device", "cpu")


pytestmark = pytest.mark.usefixtures("short")


def test_a_model_is_measured_harvested_and_stored(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb("measure", *MLP, "--repeats", 2, "--json")
    assert ran.status == 0, ran.err
    [found] = json.loads(ran.out)
    assert (found["model"], found["mode"], found["outcome"]) == ("mlp", "eager", "ok")
    assert found["time_s"] > 0
    assert (found["energy_j"], found["power_w"], found["layers"]) == (None, None, None)
    assert any(flag.startswith("no power: ") for flag in found["flags"])
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [workload] = store.workloads("mlp")
        [run] = store.model_runs(workload.key)
    assert len(run.repeats) == 2 and len(workload.calls) == 5
    assert "measure 1/1 mlp batch 1 float32 size 16 eager" in ran.err


def test_layers_are_shown_by_their_path_the_slowest_first(opdb: Opdb) -> None:
    ran = opdb("measure", *MLP, "--repeats", 1, "--layers", "--quiet")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    after = lines.index("mlp batch 1 float32 size 16: leaf modules in place")
    assert lines[after + 1].split() == ["module", "time"]
    assert sorted(line.split()[0] for line in lines[after + 2 :]) == ["0", "1", "2", "3", "4"]
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    times = [float(time) * units[unit] for _, time, unit in map(str.split, lines[after + 2 :])]
    assert times == sorted(times, reverse=True) and times[-1] > 0
    found = opdb.json("measure", *MLP, "--repeats", 1, "--layers")
    assert found[0]["layers"].keys() == {"0", "1", "2", "3", "4"}


def test_a_run_is_the_truth_beside_its_prediction(opdb: Opdb) -> None:
    assert opdb("measure", *MLP, "--repeats", 3, "--quiet").status == 0
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    found = opdb.read("predict", "mlp", "--input-size", 16)
    assert found["coverage"]["calls"] == found["coverage"]["time"] == 1
    assert found["coverage"]["energy"] is None
    assert (found["energy_j"], found["power_w"]) == (None, None)
    assert found["measured"]["time_s"] > 0 and found["measured"]["energy_j"] is None
    assert found["measured"]["attribution_energy"] is None
    ratio = found["time_s"] / found["measured"]["time_s"]
    assert found["measured"]["attribution_time"] == pytest.approx(ratio)
    document = opdb.json("validate")
    assert len(document["rows"]) == 1 and document["summary"]["energy"] is None
    assert opdb("validate").status == 0


STEP = ("mlp", "--phase", "training", "--batch-size", 4)


def test_a_step_is_harvested_benched_measured_and_predicted(opdb: Opdb) -> None:
    [found] = opdb.read("harvest", *STEP)
    assert found["training"] == {"optimizer": "sgd", "accumulation": 1}
    assert found["by_kind"]["linear backward"] == {"calls": 3, "configurations": 3}
    assert found["by_kind"]["sgd update"]["calls"] == 1
    assert opdb("bench", "--device", "cpu", "--precision", 10, "--duplicates", 0).status == 0
    assert opdb("measure", *STEP, "--device", "cpu", "--repeats", 1).status == 0
    answer = opdb.read("predict", *STEP)
    assert answer["coverage"]["calls"] == 1 and answer["missing"] == []
    assert answer["measured"]["time_s"] > 0 and answer["time_s"] > 0
    assert answer["phase"] == "training"


DRIVEN = ("mlp", "--phase", "training", "--batch-size", 4, "--backend", "cpu")
SHORT = ("--iters", 3, "--warmup-iters", 1, "--repeat", 2)


def test_a_run_prints_its_line_is_stored_and_appended(opdb: Opdb, tmp_path: Path) -> None:
    for number in range(2):
        ran = opdb("measure", *DRIVEN, *SHORT, "--label", f"run {number}", "--csv", "runs.csv")
        assert ran.status == 0, ran.err
        found = re.match(r"MEASURED_SEC=([\d.]+) IMGS_PER_SEC=([\d.]+)\n", ran.out)
        assert found is not None
        assert float(found[2]) == pytest.approx(12 / float(found[1]), rel=1e-3)
        if number == 0:  # as an editor may leave it
            Path("runs.csv").write_text(Path("runs.csv").read_text().rstrip("\n"))
    with Path("runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["run 0", "run 1"]
    assert {row["precision"] for row in rows} == {"float32"}
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [workload] = store.workloads("mlp")
        runs = store.model_runs(workload.key)
    assert [run.facts["label"] for run in runs] == ["run 0", "run 1"]
    assert [run.id for run in runs] == [row["run"] for row in rows]
