"""What shells complete, as their scripts ask for it: in a process, with the words in variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.cli import COMMANDS

HEAVY = {"torch", "torchvision", "transformers", "sqlalchemy", "numpy", "matplotlib"}
PROGRAM = """
import atexit, sys
from opdb.cli import main
atexit.register(lambda: print(*{n.split('.')[0] for n in sys.modules}, file=sys.stderr))
main([])
"""


def completed(words: str, shell: str = "bash") -> list[str]:
    """Return what is completed after the last word; nothing heavy is imported for it."""
    asked = {
        "_OPDB_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **asked}, capture_output=True, text=True
    )
    [modules] = ran.stderr.splitlines()
    assert not HEAVY & set(modules.split())
    return ran.stdout.splitlines()


def test_commands_are_completed() -> None:
    assert set(completed("opdb ")) == set(COMMANDS)
    assert completed("opdb pre") == ["predict"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("opdb predict resnet50 --layer", ["--layers"]),
        ("opdb predict resnet1", ["resnet101", "resnet152", "resnet18"]),
        ("opdb trace bert-base-u", ["bert-base-uncased"]),
        ("opdb compare resnet50 --mode gr", ["graph"]),
        ("opdb predict resnet50 --dtype b", ["bfloat16"]),
        ("opdb measure resnet50 --phase t", ["training"]),
        ("opdb bench max_pool", ["max_pool1d", "max_pool2d", "max_pool3d"]),
        ("opdb predict -b 1 -b 2 --no-h", ["--no-harvest"]),
        ("opdb nothing --h", ["--help"]),
    ],
)
def test_options_models_and_listed_values_are_completed(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


def test_every_shell_is_answered_in_its_form() -> None:
    assert "resnet18" in completed("opdb predict resnet1", "fish")
    first, *_ = lines = completed("opdb predict resnet1", "zsh")
    assert first.startswith("_arguments") and '"resnet18"))\'' in lines


def test_the_script_that_bash_is_given_completes(tmp_path: Path) -> None:
    """The script is what `opdb --show-completion` prints in bash."""
    from typer._completion_shared import get_completion_script

    bash = shutil.which("bash")
    assert bash is not None
    script = get_completion_script(prog_name="opdb", complete_var="_OPDB_COMPLETE", shell="bash")
    program = tmp_path / "opdb"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m opdb "$@"\n')
    program.chmod(0o755)
    asked = "COMP_WORDS=(opdb compl); COMP_CWORD=1; _opdb_completion opdb; echo ${COMPREPLY[@]}"
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        [bash, "-c", f"{script}\n{asked}"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["complexity"]
