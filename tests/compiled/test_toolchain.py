"""What torch.compile compiles with is looked for, and commands say what is missing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.compiled import INSTALL, INSTALL_TRITON, lacking, look
from opdb.store import open_store
from tests.paths import python_path

NOWHERE = "/nonexistent/g++"
SAID = (
    f"opdb: torch.compile does not compile anything for cpu here: no C++ compiler ({NOWHERE}) "
    f"that works; {INSTALL}\n"
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
    assert lacking("cpu") == ([], []) and look().cxx is not None


def test_each_device_asks_for_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "g++-99")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("opdb.compiled.version", lambda distribution: None)
    lacks, advice = lacking("cpu")
    assert lacks[0] == "no C++ compiler (g++-99) that works" and advice == [INSTALL]
    lacks, advice = lacking("cuda")
    assert lacks[0] == "no C compiler that works" and lacks[-1] == "no Triton"
    assert advice == [INSTALL, INSTALL_TRITON]


def test_a_mode_without_its_compiler_is_no_failure_of_the_model(tmp_path: Path) -> None:
    arguments = ("modes", *MLP, "--modes", "eager,compile", "--repeats", "1", "--quiet")
    assert run(tmp_path, *arguments, CXX=NOWHERE) == (3, SAID)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert [ran.mode for ran in store.model_runs(device=None)] == ["eager"]


def test_groups_that_need_a_compiler_stay_pending_without_one(tmp_path: Path) -> None:
    """A matrix product alone is a library's, which takes no compiler."""
    harvest = ("harvest", *MLP, "--mode", "compile", "--quiet")
    assert run(tmp_path, *harvest, CXX=NOWHERE) == (0, "")
    bench = ("bench", "fused", "--device", "cpu", "--duplicates", "0", "--quiet")
    assert run(tmp_path, *bench, CXX=NOWHERE) == (3, SAID)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [board] = store.boards()
        assert {visit.outcome for visit in store.visits(board.uuid)} <= {"ok"}
        assert store.standing(board.device).pending["fused"] > 0
