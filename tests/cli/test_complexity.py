"""`opdb complexity`: text, JSON, CSV, several batch sizes, and what it says of bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Opdb
from tests.harvest.sample_models import path


def test_people_are_shown_kinds_and_totals(opdb: Opdb) -> None:
    ran = opdb("complexity", "mlp", "resnet18", "--batch-sizes", 1, 4, "--quiet")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "resnet18, batch 4 float32: 11,689,512 parameters, 46.76 MB" in lines
    assert "FLOPs" in ran.out and "activations" in ran.out
    summary = lines[-5:]
    assert summary[0].startswith("model")
    assert [line.split()[0] for line in summary[1:]] == ["mlp", "mlp", "resnet18", "resnet18"]


def test_json_has_totals_kinds_and_operators(opdb: Opdb) -> None:
    ran = opdb("complexity", "resnet18", "--batch-sizes", "2,4", "--phase", "training", "--json")
    assert ran.status == 0
    two, four = json.loads(ran.out)
    assert (two["batch_size"], four["batch_size"], two["phase"]) == (2, 4, "training")
    assert two["parameters"] == four["parameters"] == 11_689_512
    for found in (two, four):
        for name in ("calls", "flops", "bytes_moved", "activation_bytes", "weight_bytes"):
            assert found[name] == sum(kind[name] for kind in found["by_kind"].values())
            assert found[name] == sum(each[name] for each in found["operators"])
        assert found["flops"] == found["forward_flops"] + found["backward_flops"]
        assert found["bytes_moved"] == found["forward_bytes"] + found["backward_bytes"]
    assert {each["configuration"]["kind"] for each in two["operators"]} == set(two["by_kind"])
    assert two["unsupported"] == {}


def test_csv_has_a_row_for_each_configuration_and_one_of_all(opdb: Opdb) -> None:
    ran = opdb("complexity", "resnet18", "-b", 1, "-b", 8, "--csv", "a.csv")
    assert ran.status == 0 and "written: a.csv" in ran.err
    with Path("a.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    totals = [row for row in rows if row["kind"] == "all"]
    assert [row["batch_size"] for row in totals] == ["1", "8"]
    assert {row["input_size"] for row in rows} == {"3x224x224"}
    of_one = [row for row in rows if row["batch_size"] == "1" and row["kind"] != "all"]
    assert sum(int(row["flops"]) for row in of_one) == int(totals[0]["flops"])
    assert totals[0]["parameters"] == "11689512" and not totals[0]["configuration"]
    assert all(json.loads(row["configuration"])["kind"] == row["kind"] for row in of_one)


def test_a_summary_file_says_which_workloads(opdb: Opdb) -> None:
    Path("two.yml").write_text("model: mlp\nbatch_sizes: [3, 5]\n")
    sizes = [each["batch_size"] for each in json.loads(opdb("complexity", "two.yml", "--json").out)]
    assert sizes == [3, 5]
    ran = opdb("complexity", "two.yml", "--batch-sizes", 7, "--json")
    assert [each["batch_size"] for each in json.loads(ran.out)] == [7]


def test_it_reads_no_database(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb("complexity", "mlp", "--db", "nowhere/x.sqlite").status == 0
    assert not (tmp_path / "opdb.sqlite").exists()


def test_what_no_operator_describes_is_told(opdb: Opdb) -> None:
    ran = opdb("complexity", path("scripted_beyond"))
    assert ran.status == 0 and "not counted: aten::nanmedian (outside" in ran.out


def test_one_model_that_fails_loses_no_other(opdb: Opdb) -> None:
    ran = opdb("complexity", path("fails"), "mlp", "--quiet", "--csv", "a.csv")
    assert ran.status == 2
    assert "mlp, batch 1 float32" in ran.out and ",all," in Path("a.csv").read_text()
    assert len(ran.err.splitlines()) == 1 and "fails on" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mlp", "--batch-sizes", 0), "--batch-sizes '0': give whole numbers of 1 or more"),
        (("mlp", "--batch-sizes", -1), "--batch-sizes '-1': give whole numbers of 1 or more"),
        (("mlp", "--batch-sizes", 1, 2.5), "--batch-sizes '2.5': give whole numbers"),
        (("mlp", "--batch-sizes", "abc"), "--batch-sizes 'abc': give whole numbers"),
        (("mlp", "--batch-sizes", ","), "--batch-sizes '': give whole numbers"),
        (("--batch-sizes", 16, 32), "no model is named, only batch sizes"),
        (("resnet5",), "unknown model 'resnet5'; did you mean"),
        (("mlp", "16"), "unknown model '16'"),
        (("none.yml",), "none.yml"),
        (("mlp", "--phase", "train"), "unknown --phase 'train'; did you mean 'training'?"),
        (("mlp", "--csv", "nowhere/a.csv"), "nowhere/a.csv: cannot be written: there is no folder"),
        (("mlp", "--csv", "."), ".: cannot be written: it is a folder"),
    ],
)
def test_bad_input_is_one_message(opdb: Opdb, arguments: tuple[object, ...], said: str) -> None:
    ran = opdb("complexity", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("opdb: ") and said in ran.err
    assert len(ran.err.splitlines()) == 1
