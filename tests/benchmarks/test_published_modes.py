"""How published runs in all modes are measured: the script itself, where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.store import samples

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "published_modes.sh"


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {"PATH": path, "OPDB_DB": str(folder / "a.sqlite"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **told},
        check=False,
    )


@pytest.mark.parametrize("stored", [False, True], ids=["no database", "a database"])
def test_where_nothing_can_be_measured_it_stops(tmp_path: Path, stored: bool) -> None:
    packed = tmp_path / "a.tgz"
    if stored:
        with open_store(str(tmp_path / "a.sqlite")) as store:
            workload = samples.workload("net")
            store.save_workload(workload)
            store.save_campaign(samples.campaign())
            store.save_model_run(samples.model_run(workload, "run-1"))
    done = ran(tmp_path, str(packed), "cpu", "60", "mlp", "lstm")
    assert done.returncode == 3
    assert done.stderr.count("mode 'graph' needs a CUDA device") == 1
    assert packed.is_file() == stored


@pytest.mark.parametrize("arguments", [(), ("a.tgz", "cpu"), ("a.tgz", "cpu", "soon")])
def test_how_it_is_called(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ran(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("How the published runs in all modes are measured")
