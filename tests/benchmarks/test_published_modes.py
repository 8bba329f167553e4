"""How published runs in all modes are measured: the script itself, where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.store import open_store
from tests.benchmarks.scripts import ran
from tests.store import samples

SCRIPT = "published_modes.sh"


@pytest.mark.parametrize("stored", [False, True], ids=["no database", "a database"])
def test_where_nothing_can_be_measured_it_stops(tmp_path: Path, stored: bool) -> None:
    packed = tmp_path / "a.tgz"
    if stored:
        with open_store(str(tmp_path / "a.sqlite")) as store:
            workload = samples.workload("net")
            store.save_workload(workload)
            store.save_campaign(samples.campaign())
            store.save_model_run(samples.model_run(workload, "run-1"))
    done = ran(SCRIPT, tmp_path, str(packed), "cpu", "60", "mlp", "lstm")
    assert done.returncode == 3
    assert done.stderr.count("mode 'graph' needs a CUDA device") == 1
    assert packed.is_file() == stored


@pytest.mark.parametrize("arguments", [(), ("a.tgz", "cpu"), ("a.tgz", "cpu", "soon")])
def test_how_it_is_called(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ran(SCRIPT, tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("How the published runs in all modes are measured")
