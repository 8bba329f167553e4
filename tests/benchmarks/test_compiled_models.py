"""How the error of compiled predictions is measured: the script itself, on this machine's CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.scripts import ran

SCRIPT = "compiled_models.sh"


def test_predictions_are_held_against_runs_and_packed(tmp_path: Path) -> None:
    packed = tmp_path / "a.tgz"
    done = ran(SCRIPT, tmp_path, str(packed), "cpu", "900", "3:float32", "mlp")
    assert done.returncode == 0, done.stderr
    subprocess.run(["tar", "-xzf", packed, "-C", tmp_path], check=True)
    said = (tmp_path / "validate.txt").read_text()
    [row] = [line for line in said.splitlines() if line.startswith("mlp")]
    assert "batch 3 float32" in row and "compile" in row
    assert "median error" in said and (tmp_path / "set" / "visits.csv").is_file()


def test_a_model_of_ones_own_has_a_colon_too(tmp_path: Path) -> None:
    done = ran(
        SCRIPT, tmp_path, str(tmp_path / "a.tgz"), "cpu", "1", "2:float32", "opdb.nowhere:model"
    )
    assert "model 'opdb.nowhere:model'" in done.stderr and "dtype" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("a.tgz", "cpu"), ("a.tgz", "cpu", "soon"), ("a.tgz", "cpu", "60", "mlp")],
    ids=["nothing", "no seconds", "no number", "no batch"],
)
def test_how_it_is_called(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ran(SCRIPT, tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("How right predictions of compiled models are")
