"""What torch.compile compiles with is looked for, and commands say what is missing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from opdb.compiled import INSTALL, lacking
from opdb.store import open_store
from tests.paths import python_path

NOWHERE = "/nonexistent/g++"
SAID = (
    f"opdb: torch.compile does not compile anything for cpu here: no C++ compiler ({NOWHERE}) "
    f"on PATH; {INSTALL}\n"
)
MLP = ("mlp", "--input-size", "16", "--device", "cpu")


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run opdb in a process of its own, which reads the variables before torch does."""
    environment = os.environ | {"PYTHONPATH": python_path(), **variables}
    done = subprocess.run(
        [sys.executable, "-m", "opdb", *arguments, "--db", str(folder / "opdb.sqlite")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_this_machine_has_what_a_processor_needs() -> None:
    assert lacking("cpu") == ([], [])


def test_a_mode_without_its_compiler_is_no_failure_of_the_model(tmp_path: Path) -> None:
    arguments = ("modes", *MLP, "--modes", "eager,compile", "--repeats", "1", "--quiet")
    assert run(tmp_path, *arguments, CXX=NOWHERE) == (3, SAID)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert [ran.mode for ran in store.model_runs(device=None)] == ["eager"]
