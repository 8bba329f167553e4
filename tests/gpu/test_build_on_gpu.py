"""`opdb build` and `opdb bench --grid` on a real NVIDIA GPU, end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Opdb

MODEL = "model: alexnet\ninput_size: [3, 224, 224]\nbatch_sizes: [32]\n"


@pytest.fixture(autouse=True)
def on_a_calibrated_board(calibrated: Path, tmp_path: Path) -> None:
    shutil.copy(calibrated, tmp_path / "opdb.sqlite")


def ran(opdb: Opdb, *arguments: object) -> dict[str, Any]:
    found = opdb(*arguments, "--json", "--quiet")
    assert found.status in (0, 1), found.err
    document: dict[str, Any] = json.loads(found.out)
    return document


def test_a_model_is_built_to_its_target_and_nothing_is_left(opdb: Opdb) -> None:
    Path("models").mkdir()
    Path("models/alexnet.yml").write_text(MODEL)
    build = ("build", "models", "--target", 0.9)
    cut = ran(opdb, *build, "--gpu-seconds", 90)
    [workload] = cut["workloads"]
    assert workload["coverage"]["time"] > 0.2, "the calibration leaves time for the largest"

    whole = ran(opdb, *build)
    [workload] = whole["workloads"]
    assert workload["target_met"] and workload["run"] == "ok"
    assert min(workload["coverage"][name] for name in ("time", "energy")) >= 0.9
    for name in ("time", "energy"):
        assert abs(workload[f"attribution_{name}"] - 1) <= 0.1

    again = ran(opdb, *build)
    assert again["workloads"] == whole["workloads"], "nothing was left to measure"
