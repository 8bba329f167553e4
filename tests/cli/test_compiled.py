"""`--mode compile` from harvest to validate, on the processor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read

pytestmark = pytest.mark.usefixtures("short")

MLP = ("mlp", "--input-size", 16)
HARVEST = ("harvest", *MLP, "--mode", "compile", "--device", "cpu")


def test_a_compiled_model_is_predicted_from_its_groups(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb(*HARVEST, "--json", "--quiet")
    assert ran.status == 0, ran.err
    [told] = read(ran.out)
    assert set(told["by_kind"]) == {"enter_graph", "fused"} and told["unsupported"] == {}
    assert told["compiled_for"] and not ran.err
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [plain] = store.workloads("mlp")
        [compiled] = store.workloads("mlp", compiled_for=told["compiled_for"])
    assert plain.compiled_for is None and compiled.model_key == plain.key
    assert opdb("bench", "fused", "enter_graph", "--device", "cpu", "--quiet").status == 0
    assert "compiled for it: 1 workload: opdb" in opdb("show").out
    [status] = read(opdb("show", "--json").out)["devices"]
    assert status["compiled_workloads"] == 1 and "fused" not in status["pending"]
    missing = opdb("predict", *MLP, "--mode", "compile", "--json")
    answer = read(missing.out)
    assert answer["coverage"]["calls"] == 1 and answer["time_s"] > 0
    assert answer["mode"] == "compile" and answer["measured"] is None
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    answer = read(opdb("predict", *MLP, "--mode", "compile", "--json").out)
    assert answer["measured"]["attribution_time"] == pytest.approx(
        answer["time_s"] / answer["measured"]["time_s"]
    )
    [row] = read(opdb("validate", "--json").out)["rows"]
    assert (row["model"], row["mode"]) == ("mlp", "compile")
    assert read(opdb("validate", "--mode", "compile", "--json").out)["rows"] == [row]
    assert opdb("validate", "--mode", "graph").status == 2
    assert opdb("validate", "--mode", "trace").status == 2
    assert opdb("validate", "--mode", "compile", "--kernels").status == 2


def test_files_of_differing_dtypes_and_sizes_take_one_call(opdb: Opdb) -> None:
    head = "model: mlp\ninput_size: [16]\n"
    Path("one.yml").write_text(f"{head}variants: [{{dtype: bfloat16, batch_sizes: [2, 3]}}]\n")
    Path("two.yml").write_text(f"{head}dtype: float64\nbatch_sizes: [4]\n")
    files = ("one.yml", "two.yml", "--device", "cpu", "--json", "--quiet")
    wanted = [(1, "float32"), (2, "bfloat16"), (3, "bfloat16"), (4, "float64")]
    ran = opdb("harvest", *files, "--mode", "compile")
    assert ran.status == 0, ran.err
    found = read(ran.out)
    assert [(each["batch_size"], each["dtype"]) for each in found] == wanted
    assert all(each["compiled_for"] and not each["unsupported"] for each in found)
    ran = opdb("modes", *files, "--modes", "dynamo")
    assert ran.status == 0, ran.err
    rows = read(ran.out)["rows"]
    assert sorted((row["batch_size"], row["dtype"]) for row in rows) == wanted
    assert all(row["outcome"] == "ok" for row in rows)


def test_it_comes_through_a_published_set(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb(*HARVEST, "--quiet").status == 0
    assert opdb("bench", "fused", "enter_graph", "--device", "cpu", "--quiet").status == 0
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    before = opdb("predict", *MLP, "--mode", "compile", "--json")
    assert opdb("export", tmp_path / "set", "--quiet").status == 0
    again = ("--db", tmp_path / "again.sqlite")
    assert opdb("import", tmp_path / "set", *again, "--quiet").status == 0
    after = opdb("predict", *MLP, "--mode", "compile", "--json", *again)
    assert read(after.out) == read(before.out)


def test_what_was_not_harvested_for_the_device_says_how(opdb: Opdb) -> None:
    assert opdb("harvest", *MLP, "--quiet").status == 0
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    ran = opdb("predict", *MLP, "--mode", "compile")
    assert ran.status == 2
    assert re.search(r"run opdb harvest mlp [^;,]*--mode compile there", ran.err)
    assert "opdb bench fused enter_graph" in ran.err
    ran = opdb("validate")
    assert ran.status == 2 and "left out: 1 run in modes that compile: what" in ran.err


def test_what_cannot_be_asked_for(opdb: Opdb) -> None:
    ran = opdb("harvest", "mlp", "--device", "cpu")
    assert ran.status == 2 and "--mode compile" in ran.err
    ran = opdb("harvest", "mlp", "--mode", "complie")
    assert ran.status == 2 and "did you mean 'compile'" in ran.err
    ran = opdb("harvest", "mlp", "--mode", "compile", "--device", "gpu")
    assert ran.status == 2 and "'cpu'" in ran.err
    ran = opdb("harvest", "mlp", "--mode", "compile", "--phase", "training", "--device", "cpu")
    assert ran.status == 2 and "inference" in ran.err
    assert opdb(*HARVEST, "--quiet").status == 0
    ran = opdb("roofline", *MLP, "--mode", "compile")
    assert ran.status == 2
