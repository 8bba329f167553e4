"""How the error of compiled predictions is measured: the script itself, on this machine's CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.scripts import ROOT, brief_python, ran

SCRIPT = "compiled_models.sh"
MLP = "model: mlp\ninput_size: [16]\ndtype: bfloat16\nbatch_sizes: [2]\n"


def test_predictions_are_held_against_runs_and_packed(tmp_path: Path) -> None:
    packed, file, brief = tmp_path / "a.tgz", tmp_path / "mlp.yml", brief_python(tmp_path)
    file.write_text(MLP)
    done = ran(SCRIPT, tmp_path, str(packed), "cpu", "900", str(file), first=brief)
    assert done.returncode == 0, done.stderr
    commands = ["harvest", "bench", "modes", "validate", "validate", "export"]
    assert (brief / "commands").read_text().split() == commands
    subprocess.run(["tar", "-xzf", packed, "-C", tmp_path], check=True)
    said = (tmp_path / "validate.txt").read_text()
    [row] = [line for line in said.splitlines() if line.startswith("mlp")]
    assert "batch 2 bfloat16" in row and "compile" in row
    assert "median error" in said and (tmp_path / "set" / "visits.csv").is_file()


@pytest.mark.parametrize(
    ("seconds", "said", "harvested"),
    [("900", "model 'opdb.nowhere:model'", True), ("1", "the time is up before opdb", False)],
    ids=["no model", "no time"],
)
def test_what_cannot_be_measured_is_told(
    tmp_path: Path, seconds: str, said: str, harvested: bool
) -> None:
    arguments, brief = ("cpu", seconds, "opdb.nowhere:model"), brief_python(tmp_path)
    done = ran(SCRIPT, tmp_path, str(tmp_path / "a.tgz"), *arguments, first=brief)
    assert said in done.stderr
    commands = (brief / "commands").read_text().split()
    assert ("harvest" in commands) == harvested and "bench" not in commands


def test_the_models_are_those_of_their_folder() -> None:
    assert "../measurements/compiled/*.yml" in (ROOT / "benchmarks" / SCRIPT).read_text()
    assert list((ROOT / "measurements" / "compiled").glob("*.yml"))


@pytest.mark.parametrize(
    "arguments",
    [(), ("a.tgz", "cpu"), ("a.tgz", "cpu", "soon")],
    ids=["nothing", "no seconds", "no number"],
)
def test_how_it_is_called(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ran(SCRIPT, tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("How right predictions of compiled models are")
