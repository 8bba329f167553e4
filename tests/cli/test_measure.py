"""`opdb measure` on the processor."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read

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
    found = json.loads(opdb("measure", *MLP, "--repeats", 1, "--layers", "--json").out)
    assert found[0]["layers"].keys() == {"0", "1", "2", "3", "4"}


def test_a_model_that_fails_does_not_stop_the_others(opdb: Opdb, tmp_path: Path) -> None:
    names = [f"tests.bench.test_model:{name}" for name in ("unbuildable", "broken", "overflowing")]
    ran = opdb("measure", *names, "--input-size", 3, "--device", "cpu", "--repeats", 1, "--json")
    assert ran.status == 2
    assert "Traceback" not in ran.err
    found = json.loads(ran.out)
    assert [(f["model"], f["outcome"]) for f in found] == [(names[1], "error"), (names[2], "ok")]
    assert found[0]["time_s"] is None and "half way" in found[0]["reason"]
    message = ran.err[ran.err.index("opdb: ") :].splitlines()
    assert message[0] == "opdb: 2 models failed; what was finished is stored"
    assert "unbuildable" in message[1] and "no such file" in message[1]
    assert (
        message[2]
        .strip()
        .startswith(f"{names[1]} batch 1 float32 size 3 eager: error: RuntimeError")
    )
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert [run.outcome for run in store.model_runs()] == ["error", "ok"]


def test_one_failure_is_one_line(opdb: Opdb) -> None:
    ran = opdb("measure", "mlp", "--batch-size", 2**33, "--device", "cpu", "--quiet")
    assert ran.status == 2
    assert ran.err.startswith("opdb: mlp batch 8589934592 float32 size 784 eager: out_of_memory: ")
    assert len(ran.err.splitlines()) == 1


def test_every_batch_size_of_a_summary_file(opdb: Opdb) -> None:
    Path("net.yml").write_text("model: mlp\ninput_size: [16]\nbatch_sizes: [1, 4]\n")
    ran = opdb("measure", "net.yml", "--device", "cpu", "--repeats", 1, "--json")
    assert ran.status == 0, ran.err
    assert [f["batch_size"] for f in json.loads(ran.out)] == [1, 4]


def test_a_run_is_the_truth_beside_its_prediction(opdb: Opdb) -> None:
    """Harvest, bench, measure, predict and validate, end to end on the processor."""
    assert opdb("measure", *MLP, "--repeats", 3, "--quiet").status == 0
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    ran = opdb("predict", "mlp", "--input-size", 16, "--json")
    assert ran.status == 0, ran.err
    found = read(ran.out)
    assert found["coverage"]["calls"] == found["coverage"]["time"] == 1
    assert found["coverage"]["energy"] is None
    assert (found["energy_j"], found["power_w"]) == (None, None)
    assert found["measured"]["time_s"] > 0 and found["measured"]["energy_j"] is None
    assert found["measured"]["attribution_energy"] is None
    ratio = found["time_s"] / found["measured"]["time_s"]
    assert found["measured"]["attribution_time"] == pytest.approx(ratio)
    ran = opdb("validate", "--json")
    assert ran.status == 0
    document = json.loads(ran.out)
    assert len(document["rows"]) == 1 and document["summary"]["energy"] is None
    assert opdb("validate").status == 0
    assert re.search(r"^energy +–", opdb("predict", "mlp", "--input-size", 16).out, re.MULTILINE)


def test_runs_of_another_version_that_called_something_else_are_told_of(
    opdb: Opdb, tmp_path: Path
) -> None:
    assert opdb("measure", "mlp", "--device", "cpu", "--quiet").status == 0
    cpu = ("--device", "cpu")
    for command in (("harvest",), ("measure", *cpu), ("build", "--gpu-seconds", "0", *cpu)):
        with open_store(str(tmp_path / "opdb.sqlite")) as store:
            [mlp] = store.workloads("mlp")
            runs = len(store.model_runs(mlp.key))
            store.save_workload(replace(mlp, source_version="0", calls=mlp.calls[1:]))
        said = f"calls something else in builtin {mlp.source_version} than when"
        first, again = opdb(*command, "mlp"), opdb(*command, "mlp")
        assert said in first.err and f"runs of it were measured ({runs})" in first.err
        assert said not in again.err


def test_such_runs_are_in_the_json_of_a_harvest(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb("measure", *MLP, "--repeats", 1, "--quiet").status == 0
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [mlp] = store.workloads("mlp")
        store.save_workload(replace(mlp, source_version="0", calls=mlp.calls[1:]))
    harvest = ("harvest", "mlp", "--input-size", 16, "--json")
    found = [json.loads(opdb(*harvest).out)[0]["runs_of_other_calls"] for _ in range(2)]
    assert found == [1, 0]
