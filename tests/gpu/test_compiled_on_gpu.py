"""Compiled models on a real NVIDIA GPU: their groups launch what they launch, and add up to it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from opdb.cli import main
from opdb.store import open_store

MODEL = ("resnet18", "--batch-size", "128")
"""So large that the device, not the host, tells what a pass takes."""
CLOSE = 0.15
"""A bound for a test, not what is claimed: docs/studies.md says how right predictions were."""


@pytest.fixture(scope="module")
def measured(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with ResNet-18 as compiled, its groups benched, and a run."""
    path = tmp_path_factory.mktemp("compiled") / "opdb.sqlite"
    path.write_bytes(calibrated.read_bytes())
    for arguments in (
        ("harvest", *MODEL, "--mode", "compile"),
        ("bench", "fused", "enter_graph", "--duplicates", "0", "--precision", "0.1"),
        ("measure", *MODEL, "--mode", "compile", "--repeats", "2"),
    ):
        assert main([*arguments, "--db", str(path), "--quiet"]) == 0
    return path


def test_a_compiled_model_is_the_sum_of_its_groups(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*arguments: str) -> Any:
        capsys.readouterr()
        main([*arguments, "--db", str(measured), "--json"])
        return json.loads(capsys.readouterr().out)

    answer = shown("predict", *MODEL, "--mode", "compile")
    assert answer["coverage"]["calls"] == 1 and answer["missing"] == []
    truth = answer["measured"]
    assert abs(truth["attribution_time"] - 1) < CLOSE
    assert abs(truth["attribution_energy"] - 1) < CLOSE
    with open_store(str(measured)) as store:
        [board] = {campaign.board.uuid for campaign in store.campaigns()}
        kernels = store.kernels(board)
        [workload] = store.workloads("resnet18", compiled_for=answer["device"])
    sorts: Counter[bool] = Counter()
    for configuration, count in workload.occurrences().items():
        for name, launches in kernels[configuration.key].items():
            sorts[name.startswith("triton_")] += count * launches
    assert sorts[True] and sorts[False]
    [row] = shown("validate", "--kernels")["kernels"]
    assert sum(row["model_alone"].values()) + sum(row["operators_alone"].values()) <= 4
