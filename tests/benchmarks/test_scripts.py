"""Scripts that measure published sets, run as by hand on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.store import Store, open_store
from tests.paths import ROOT, python_path
from tests.published import import_set

pytestmark = pytest.mark.slow

BRIEF = """\
#!/bin/sh
case "$2 $3" in
"opdb bench" | "opdb measure")
    shift 2 && exec "{python}" -m tests.benchmarks.briefly "$@" ;;
*) exec "{python}" "$@"
esac
"""


@pytest.fixture
def brief(tmp_path: Path) -> Path:
    """A folder with a `python3` whose opdb measures briefly."""
    found = tmp_path / "bin" / "python3"
    found.parent.mkdir()
    found.write_text(BRIEF.format(python=sys.executable))
    found.chmod(0o755)
    return found.parent


def ran(
    name: str, folder: Path, *arguments: str, first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, its database `a.sqlite` in the folder; programs in `first` go before others."""
    folders = [first, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(str(each) for each in folders if each is not None)
    told = {"PATH": path, "OPDB_DB": str(folder / "a.sqlite"), "PYTHONPATH": python_path()}
    return subprocess.run(
        [str(ROOT / "benchmarks" / name), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **told},
        check=False,
    )


def measured(folder: Path, brief: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran("published_set.sh", folder, str(folder / "a.tgz"), "cpu", *arguments, first=brief)


def unpacked(folder: Path) -> Store:
    """Return a database of what the script packed, and of nothing else."""
    (folder / "set").mkdir()
    subprocess.run(["tar", "-xzf", folder / "a.tgz", "-C", folder / "set"], check=True)
    store = open_store(str(folder / "other.sqlite"))
    import_set(store, folder / "set")
    return store


def test_a_grid_is_measured_and_packed(tmp_path: Path, brief: Path) -> None:
    (tmp_path / "grid.yml").write_text(
        "operator: nn.Linear\narguments: {in_features: [64, 128], out_features: 64}\n"
        "inputs: {input: [8, in_features]}\n"
    )
    done = measured(tmp_path, brief, "60", "grid", str(tmp_path / "grid.yml"))
    assert done.returncode == 0, done.stderr
    with unpacked(tmp_path) as store:
        assert {c.kind for c in store.configurations()} >= {"linear"}
        [board] = store.boards()
        assert len(store.costs(board.uuid)) >= 2


def test_what_was_finished_before_a_failure_is_packed(tmp_path: Path, brief: Path) -> None:
    """The operators of a model are there although it cannot be run as a CUDA graph here."""
    (tmp_path / "mlp.yml").write_text("model: mlp\nsource: builtin\nbatch_sizes: [4]\n")
    done = measured(tmp_path, brief, "60", "models", str(tmp_path / "mlp.yml"))
    assert done.returncode == 3 and "mode 'graph' needs a CUDA device" in done.stderr
    with unpacked(tmp_path) as store:
        [workload] = store.workloads()
        assert workload.name == "mlp"
        assert {c.kind for c in store.configurations()} >= {"linear", "relu"}
