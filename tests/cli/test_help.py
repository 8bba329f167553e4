from __future__ import annotations

import re
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


@pytest.mark.parametrize(("name", "usual"), [("derive", "all"), ("export", "the only one")])
def test_commands_that_choose_no_device_say_so(name: str, usual: str, opdb: Opdb) -> None:
    shown = " ".join(opdb(name, "--help").out.split())
    assert f"A device, such as nvidia-h200, 'NVIDIA H200' or h200. [default: {usual}]" in shown


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


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from opdb.cli import main; main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sqlalchemy', 'pydantic', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
