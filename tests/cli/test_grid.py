"""`opdb bench --grid` on the processor: a small grid from its file to its costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb

GRID = """\
operator: nn.Linear
arguments: {in_features: [8, 16], out_features: 4}
sizes: {batch: 2}
inputs: {input: [batch, in_features]}
zeros: [0, 0.9]
at_most: {flops: 10000}
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
