"""`opdb bench --grid` on the processor: a small grid from its file to its costs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from opdb import grid as grids
from opdb.store import open_store
from tests.bench.calls import RELU, workload
from tests.cli.conftest import Opdb, snapshot

GRID = """\
operator: nn.Linear
arguments: {in_features: [8, 16], out_features: 4}
sizes: {batch: 2}
inputs: {input: [batch, in_features]}
zeros: [0, 0.9]
at_most: {flops: 10000}
"""
REFUSED = """\
operator: nn.Conv2d
arguments: {in_channels: 2, out_channels: 2, kernel_size: [1, 5], groups: [1, 3]}
inputs: {input: [1, 2, 4, 4]}
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the database of `opdb` will be: there is none yet."""
    return tmp_path / "opdb.sqlite"


@pytest.fixture
def grid(opdb: Opdb) -> Path:
    path = Path("grid.yml")
    path.write_text(GRID)
    return path


@pytest.mark.usefixtures("short")
def test_a_grid_is_benched_without_any_model_and_resumes(
    opdb: Opdb, grid: Path, database: Path
) -> None:
    found = opdb.json("bench", "--grid", grid, "--device", "cpu", "--duplicates", 0)
    assert (found["configurations"], found["outcomes"]) == (4, {"ok": 8})
    assert found["grid"] == {
        "file": "grid.yml",
        "combinations": 4,
        "sample": None,
        "tried": 4,
        "configurations": 4,
        "repeated": 0,
        "dropped": [],
    }
    with open_store(str(database)) as store:
        [board] = store.boards()
        configurations = store.configurations()
        costs = store.costs(board.uuid)
        assert {c.key for c in configurations} == set(costs) and len(costs) == 4
        assert all(cost.time_s is not None for [cost] in costs.values())
        order = [v.configuration for v in store.visits(board.uuid)]
        assert order == order[:4] * 2, "both rounds keep the order of the file"
        by_key = {c.key: c for c in configurations}
        assert [by_key[key].inputs["weight"]["shape"][1] for key in order[:4]] == [8, 8, 16, 16]
    again = opdb("bench", "--grid", grid, "--device", "cpu", "--duplicates", 0)
    assert again.status == 0 and again.out.startswith("nothing is pending on ")
    assert "grid.yml: 4 configurations of 4 combinations" in again.err
    grid.write_text(GRID.replace("[8, 16]", "[8, 16, 32]"))
    more = opdb("bench", "--grid", grid, "--device", "cpu", "--duplicates", 0, "--json")
    assert json.loads(more.out)["configurations"] == 2, "what is there is not measured again"


@pytest.mark.usefixtures("short")
def test_status_counts_what_belongs_to_no_workload(opdb: Opdb, grid: Path, database: Path) -> None:
    assert opdb("bench", "--grid", grid, "--device", "cpu", "--duplicates", 0).status == 0
    with open_store(str(database)) as store:
        [first, *_] = store.configurations()
        store.save_workload(workload(first, RELU))
    [device] = opdb.json("show")["devices"]
    assert device["measured"] == 4
    assert device["pending"] == {"relu": 1}, "a grid is pending where it is asked for alone"
    found = opdb.json("bench", "--device", "cpu", "--duplicates", 0)
    assert found["configurations"] == 1


def test_a_dry_run_needs_neither_database_nor_device(opdb: Opdb, tmp_path: Path) -> None:
    Path("grid.yml").write_text(REFUSED)
    before = snapshot(tmp_path)
    ran = opdb("bench", "--grid", "grid.yml", "--dry-run")
    assert ran.status == 0, ran.err
    first, *others = ran.out.splitlines()
    assert first == "grid.yml: 1 configuration of 4 combinations"
    calculated = "Calculated padded" if torch.__version__ >= "2.14" else "Given"
    assert sorted(re.split(r" [(\[]", line)[0] for line in others) == [
        f"  dropped 1: {calculated} input size per channel:",
        "  dropped 2: in_channels must be divisible by groups",
    ]
    ran = opdb("bench", "--grid", "grid.yml", "--dry-run", "--json", "--quiet")
    assert ran.err == ""
    found = json.loads(ran.out)
    assert [each["combinations"] for each in found["grid"]["dropped"]] == [2, 1]
    assert found["grid"]["dropped"][0]["first"] == {"kernel_size": 1, "groups": 3}
    assert [c["kind"] for c in found["configurations"]] == ["conv2d"]
    assert snapshot(tmp_path) == before


def test_a_sample_that_cannot_be_had_is_said(opdb: Opdb) -> None:
    Path("grid.yml").write_text(REFUSED + "sample: 3\n")
    ran = opdb("bench", "--grid", "grid.yml", "--dry-run", "--quiet")
    assert "no more were found for the sample of 3" in ran.out


LARGE = GRID.replace("[8, 16]", "{from: 1, to: 6000}")


def test_a_large_grid_is_taken_where_that_is_said(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "MOST", 1000)
    Path("grid.yml").write_text(LARGE.replace("6000", "501").replace("10000", "100"))
    command = ("bench", "--grid", "grid.yml", "--dry-run", "--quiet")
    refused = opdb(*command)
    assert refused.status == 2 and "1002 combinations, more than 1000" in refused.err
    ran = opdb(*command, "--yes")
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[0] == "grid.yml: 12 configurations of 1002 combinations"


def test_harvest_of_the_summary_files_passes_grids_over(opdb: Opdb) -> None:
    from opdb.summary import summary_files

    root = Path(__file__).parents[2]
    assert (root / "measurements" / "grids").is_dir()
    assert all(path.parent.name == "measurements" for path in summary_files(f"{root}/measurements"))
