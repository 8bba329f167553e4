"""Ctrl-C at any moment is one line and exit status 130: real processes, a signal after a delay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from opdb.cli import main
from opdb.errors import InputError
from tests.paths import python_path

ROOT = Path(__file__).parents[2]
BEGIN = """
import sys
import opdb.__main__ as begin
opened = begin._open_standard_files
begin._open_standard_files = lambda: (opened(), print('begun', flush=True))
main = begin.main
"""
"""As the installed script begins; what Python itself does before that is not opdb's."""

IMPORT = ("import", str(ROOT / "db" / "nvidia-h200"), "--db")
"""It takes a while and imports no torch: what that does with an interrupted import is its own."""

SAID = ("opdb: interrupted; nothing was begun", "opdb: interrupted; what was finished is stored")


def interrupted(program: str, delay_s: float, database: Path) -> tuple[int, str]:
    """Send SIGINT so many seconds after an import has begun; return its status and its errors."""
    command = [sys.executable, "-c", program, *IMPORT, str(database)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.2])
def test_ctrl_c_is_one_line_at_any_moment(tmp_path: Path, delay_s: float) -> None:
    status, said = interrupted(BEGIN + "sys.exit(main())", delay_s, tmp_path / "opdb.sqlite")
    assert status == 130, said
    assert said.strip() in SAID


@pytest.mark.parametrize("raised", [SystemError, OSError, InputError])
def test_ctrl_c_that_a_library_makes_another_error_of_is_told_as_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: type[Exception]
) -> None:
    def run(interrupt: bool = False) -> None:
        try:
            if interrupt:
                signal.raise_signal(signal.SIGINT)
        finally:
            raise raised("returned a result with an exception set")

    monkeypatch.setattr("opdb.commands.harvest.run", run)
    assert main(["harvest", "--interrupt"]) == 130
    assert capsys.readouterr().err == f"{SAID[1]}\n"
    assert main(["harvest"]) == 2, "of an earlier command nothing is left"
    assert "returned a result" in capsys.readouterr().err


def test_where_ctrl_c_is_ignored_it_stays_so(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    status, said = interrupted(
        ignoring + BEGIN + "sys.argv[1:] = ['--version']; sys.exit(main())", 0.0, tmp_path / "x"
    )
    assert (status, said) == (0, "")


def test_the_script_begins_there() -> None:
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["opdb"]
    module, _, name = script.partition(":")
    assert module == "opdb.__main__" and callable(getattr(import_module(module), name))
