"""`opdb complexity`: text, JSON, CSV, several batch sizes, and what it says of bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from opdb.kinds import KINDS
from opdb.models import checked
from opdb.records import Phase
from opdb.spec import ModelSpec
from opdb.studies.complexity import Complexity, Count, complexity
from tests.cli.conftest import Opdb


def test_json_has_totals_kinds_and_operators(opdb: Opdb) -> None:
    two, four = opdb.json("complexity", "resnet18", "--batch-sizes", "2,4", "--phase", "training")
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


def counted(name: str, batch_size: int = 2, phase: Phase = "inference") -> Complexity:
    return complexity(checked(ModelSpec(name, batch_size=batch_size, phase=phase)))


def test_totals_are_the_sums_of_all_calls() -> None:
    found = counted("resnet18")
    calls = [call.configuration for call in found.workload.calls]
    assert found.total.calls == len(calls)
    assert found.total.forward_flops == sum(KINDS[c.kind].flops(c) for c in calls)
    assert found.total.bytes_moved == sum(KINDS[c.kind].bytes_moved(c) for c in calls)
    assert found.total.backward_flops == found.total.backward_bytes == 0
    together = sum(found.by_kind().values(), Count())
    assert together == found.total


def test_what_grows_with_the_batch_and_what_does_not() -> None:
    one, eight = counted("resnet18", 1), counted("resnet18", 8)
    assert eight.parameters == one.parameters
    assert eight.total.flops == 8 * one.total.flops
    assert eight.total.activation_bytes == 8 * one.total.activation_bytes
    assert eight.total.weight_bytes == one.total.weight_bytes
    assert one.total.bytes_moved < eight.total.bytes_moved < 8 * one.total.bytes_moved
