"""What is said of the host beside a measured pass that waits for it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from opdb.commands.measure import Measured, MeasuredRun
from opdb.derive.runs import QUIET_BLOCKS, run_cost
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """The published runs, as if those in eager were measured as waiting for the host."""
    h200 = published.copy_to(tmp_path / "opdb.sqlite")
    connection = sqlite3.connect(h200)
    facts = json.dumps({QUIET_BLOCKS: 100})
    connection.execute("UPDATE model_run SET facts = ? WHERE mode = 'eager'", (facts,))
    connection.commit()
    connection.close()
    return h200


def test_predict_says_how_slow_the_host_was_when_a_pass_was_measured(
    opdb: Opdb, waiting: Path
) -> None:
    asked = "predict", "resnet18", "-b", 1, "--mode", "eager"
    found = json.loads(opdb(*asked, "--json").out)
    slowdown = found["measured"]["host_slowdown"]
    assert 0.9 < slowdown["low"] <= slowdown["median"] <= slowdown["high"] < 3
    [line] = [line for line in opdb(*asked).out.splitlines() if line.startswith("host: ")]
    assert f"it took {slowdown['median']:.2f} times as long as in quiet moments (" in line
    graph = opdb("predict", "resnet18", "-b", 1, "--mode", "graph")
    assert "host: " not in graph.out


def test_validate_holds_quiet_time_and_gives_the_slowdown(opdb: Opdb, waiting: Path) -> None:
    rows = json.loads(opdb("validate", "resnet18", "--json").out)["rows"]
    slower = {row["mode"]: row["host_slowdown"] for row in rows if row["batch_size"] == 1}
    assert slower["graph"] is None and slower["eager"]["median"] >= 1


def test_measure_says_how_slow_the_host_was(waiting: Path) -> None:
    with open_store(str(waiting)) as store:
        [workload] = store.workloads("resnet18", batch_size=1)
        run = store.model_runs(workload.key, mode="eager")[-1]
    found = Measured([MeasuredRun(workload, run, run_cost([run]))])
    text = "\n".join(found.lines())
    assert "resnet18 batch 1 float32 eager: the host took 1." in text
    [row] = found.to_dict()
    assert row["host_slowdown"]["median"] > 1
