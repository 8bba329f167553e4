"""How published sets are measured: the script itself, on this machine's CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opdb.store import Store, open_store
from opdb.store.exchange import import_set
from tests.benchmarks import scripts

GRID = """\
operator: nn.Linear
arguments: {in_features: [64, 128], out_features: 64}
inputs: {input: [8, in_features]}
"""


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    given, brief = (str(folder / "a.tgz"), "cpu", *arguments), scripts.brief_python(folder)
    return scripts.ran("published_set.sh", folder, *given, first=brief)


def unpacked(folder: Path) -> Store:
    """Return a database of what the script packed, and of nothing else."""
    (folder / "set").mkdir()
    subprocess.run(["tar", "-xzf", folder / "a.tgz", "-C", folder / "set"], check=True)
    store = open_store(str(folder / "other.sqlite"))
    import_set(store, folder / "set")
    return store


def test_a_grid_is_measured_and_packed(tmp_path: Path) -> None:
    (tmp_path / "grid.yml").write_text(GRID)
    done = ran(tmp_path, "60", "grid", str(tmp_path / "grid.yml"))
    assert done.returncode == 0, done.stderr
    with unpacked(tmp_path) as store:
        assert {c.kind for c in store.configurations()} >= {"linear"}
        [board] = store.boards()
        assert len(store.costs(board.uuid)) >= 2


def test_a_training_step_is_measured_and_packed(tmp_path: Path) -> None:
    model = "model: mlp\nsource: builtin\nphase: training\nbatch_sizes: [4]\n"
    (tmp_path / "mlp.yml").write_text(model)
    done = ran(tmp_path, "6", "training", str(tmp_path / "mlp.yml"))
    assert done.returncode == 0, done.stderr
    with unpacked(tmp_path) as store:
        [workload] = store.workloads()
        assert workload.phase == "training"
        [run] = store.model_runs(workload.key)
        assert (run.mode, run.outcome, run.facts["iters"]) == ("eager", "ok", 20)


def test_what_was_finished_before_a_failure_is_packed(tmp_path: Path) -> None:
    """The operators of a model are there although it cannot be run as a CUDA graph here."""
    (tmp_path / "mlp.yml").write_text("model: mlp\nsource: builtin\nbatch_sizes: [4]\n")
    done = ran(tmp_path, "60", "models", str(tmp_path / "mlp.yml"))
    assert done.returncode == 3 and "mode 'graph' needs a CUDA device" in done.stderr
    with unpacked(tmp_path) as store:
        [workload] = store.workloads()
        assert workload.name == "mlp"
        assert {c.kind for c in store.configurations()} >= {"linear", "relu"}


@pytest.mark.parametrize("arguments", [("60",), ("60", "modles", "x.yml")])
def test_a_mistake_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ran(tmp_path, *arguments)
    assert done.returncode == 2 and "workloads" in done.stderr


def test_seconds_that_are_no_number_are_not_taken(tmp_path: Path) -> None:
    done = ran(tmp_path, "soon", "grid", "grid.yml")
    assert done.returncode == 2
    assert done.stderr.startswith("How a published set is measured")
