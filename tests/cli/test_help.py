from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from opdb.bench.allocation import SUM_PRECISION
from opdb.cli import COMMANDS
from opdb.derive.precision import PRECISION
from opdb.predict import MODES, PLAIN_MODES
from tests.cli.conftest import Opdb

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_common_options(name: str, opdb: Opdb) -> None:
    ran = opdb(name, "--help")
    assert ran.status == 0
    for option in ("--db", "--json", "--quiet", "--debug"):
        assert option in ran.out
    assert (import_module(COMMANDS[name]).run.__doc__ or "").strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str, opdb: Opdb) -> None:
    options = opdb(name, "--help").out.split("Options:")[1]
    for line in options.splitlines():
        if line.strip().startswith("-") and len(line) < 40:
            flag = line.split()[0]
            following = options.split(line)[1].splitlines()[1]
            assert not following.strip().startswith("-"), f"{flag} of opdb {name} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_what_stands_in_brackets_is_a_default_or_a_range(name: str, opdb: Opdb) -> None:
    options = " ".join(opdb(name, "--help").out.split("Options:")[1].split())
    for said in re.findall(r"\[([^\]]*)\]", options):
        assert re.match(r"default: |required|x>=|\d+<=x", said), said


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_names_each_argument_once_in_capitals(name: str, opdb: Opdb) -> None:
    """The dots of several are the library's to add."""
    usage = opdb(name, "--help").out.split("\n\n")[0].split("[OPTIONS]")[1]
    named = re.sub(r"\.\.\.(?= |$)", "", usage).replace("slurm", "SLURM")
    assert re.fullmatch(r"(\s*[\[{]?(-- )?[A-Z]+[\]}]?)*", named), usage


@pytest.mark.parametrize(
    ("name", "modes"), [("predict", MODES), ("build", PLAIN_MODES), ("roofline", PLAIN_MODES)]
)
def test_the_modes_that_a_command_predicts_are_listed(
    name: str, modes: Sequence[str], opdb: Opdb
) -> None:
    shown = " ".join(opdb(name, "--help").out.split())
    *others, last = modes
    assert f"How work is issued: {', '.join(others)} or {last}." in shown


@pytest.mark.parametrize(
    ("name", "usual"), [("status", "all"), ("derive", "all"), ("export", "the only one")]
)
def test_commands_that_choose_no_device_say_so(name: str, usual: str, opdb: Opdb) -> None:
    shown = " ".join(opdb(name, "--help").out.split())
    assert f"A device as opdb status names it. [default: {usual}]" in shown


def test_the_precision_of_a_bench_is_said_as_it_is(opdb: Opdb) -> None:
    shown = " ".join(opdb("bench", "--help").out.split())
    assert f"[default: {SUM_PRECISION}; for energies {PRECISION}]" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_docs(name: str) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages if page.exists())
    assert f"opdb {name}" in text, f"README.md or docs/ must say what opdb {name} does"


def test_all_commands_are_listed(opdb: Opdb) -> None:
    ran = opdb("--help")
    assert ran.status == 0
    listed = ran.out.split("Commands:")[1].splitlines()
    assert [line.split()[0] for line in listed if line.strip()] == list(COMMANDS)


def test_the_version(opdb: Opdb) -> None:
    from opdb import __version__

    assert opdb("--version").out == f"opdb {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from opdb.cli import main; main(['--help'])\n"
        "heavy = {'torch', 'alembic', 'numpy', 'scipy', 'sqlalchemy', 'pydantic', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
    assert time.monotonic() - start < 5  # about 0.2 s on an idle machine
