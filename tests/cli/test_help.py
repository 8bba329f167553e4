from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from opdb.bench.plan import SUM_PRECISION
from opdb.cli import COMMANDS
from opdb.derive.statistics import PRECISION
from opdb.predict.predictor import MODES, PLAIN_MODES
from tests.cli.conftest import Opdb

ROOT = Path(__file__).parents[2]


def test_every_command_and_option_has_help_of_one_form(opdb: Opdb) -> None:
    wrong = []
    for name in COMMANDS:
        ran = opdb(name, "--help")
        assert ran.status == 0 and (import_module(COMMANDS[name]).run.__doc__ or "").strip(), name
        common = ("--db", "--json", "--quiet", "--debug")
        wrong += [f"{name} has no {option}" for option in common if option not in ran.out]
        # Usage names each argument once in capitals; the dots of several are the library's to add.
        usage = ran.out.split("\n\n")[0].split("[OPTIONS]")[1]
        named = re.sub(r"\.\.\.(?= |$)", "", usage).replace("slurm", "SLURM")
        if not re.fullmatch(r"(\s*[\[{]?(-- )?[A-Z]+[\]}]?)*", named):
            wrong.append(f"{name}: usage {usage}")
        options = ran.out.split("Options:")[1]
        for said in re.findall(r"\[([^\]]*)\]", " ".join(options.split())):
            if not re.match(r"default: |required|x>=|\d+<=x", said):
                wrong.append(f"{name}: [{said}] is no default and no range")
        for line in options.splitlines():
            if line.strip().startswith("-") and len(line) < 40:
                following = options.split(line)[1].splitlines()[1]
                if following.strip().startswith("-"):
                    wrong.append(f"{name}: {line.split()[0]} has no help")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "modes"), [("predict", MODES), ("build", PLAIN_MODES), ("roofline", PLAIN_MODES)]
)
def test_the_modes_that_a_command_predicts_are_listed(
    name: str, modes: Sequence[str], opdb: Opdb
) -> None:
    shown = " ".join(opdb(name, "--help").out.split())
    *others, last = modes
    assert f"How work is issued: {', '.join(others)} or {last}." in shown


def test_a_command_that_chooses_no_device_says_so(opdb: Opdb) -> None:
    shown = " ".join(opdb("export", "--help").out.split())
    assert "A device, such as nvidia-h200, 'NVIDIA H200' or h200. [default: the only one]" in shown


def test_the_precision_of_a_bench_is_said_as_it_is(opdb: Opdb) -> None:
    shown = " ".join(opdb("bench", "--help").out.split())
    assert f"[default: {SUM_PRECISION}; for energies {PRECISION}]" in shown


def test_every_command_is_in_the_docs() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    assert [name for name in COMMANDS if f"opdb {name}" not in text] == []


def test_all_commands_are_listed_in_panels_and_nothing_is_cut(opdb: Opdb) -> None:
    ran = opdb("--help")
    assert ran.status == 0 and opdb().out == ran.out
    assert "…" not in ran.out and "..." not in ran.out.split("Predict:")[1]
    panels = re.split(r"(?m)^(Predict|Measure|Data|Studies):$", ran.out)[1:]
    assert panels[::2] == ["Predict", "Measure", "Data", "Studies"]
    listed = [re.findall(r"(?m)^  (\w+)  ", panel) for panel in panels[1::2]]
    assert all(names == sorted(names) for names in listed)
    assert sorted(name for names in listed for name in names) == sorted(COMMANDS)
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_version(opdb: Opdb) -> None:
    from opdb import __version__

    assert opdb("--version").out == f"opdb {__version__}\n"


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
