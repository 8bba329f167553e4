"""Ctrl-C at any moment is one line and exit status 130: real processes, a signal after a delay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
import weakref
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

PLAIN = "import sys; print('begun', flush=True); from opdb.cli import main; "
"""As it would without a beginning of its own."""

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


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4])
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

    monkeypatch.setattr("opdb.cli.commands.harvest.run", run)
    assert main(["harvest", "--interrupt"]) == 130
    assert capsys.readouterr().err == f"{SAID[1]}\n"
    assert main(["harvest"]) == 2, "of an earlier command nothing is left"
    assert "returned a result" in capsys.readouterr().err


def test_ctrl_c_in_a_callback_whose_errors_python_ignores_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Held:
        pass

    def run() -> None:
        held = Held()
        watching = weakref.ref(held, lambda _: signal.raise_signal(signal.SIGINT))
        del held
        time.sleep(60)
        assert watching() is None

    monkeypatch.setattr("opdb.cli.commands.harvest.run", run)
    assert main(["harvest"]) == 130
    assert capsys.readouterr().err == f"{SAID[1]}\n"


def test_without_it_the_imports_show_a_traceback(tmp_path: Path) -> None:
    """So it was: what the test above looks for can be seen."""
    found = [
        interrupted(PLAIN + "sys.exit(main())", delay_s, tmp_path / "opdb.sqlite")
        for delay_s in (0.01, 0.02, 0.04)
    ]
    assert any("Traceback" in said for _, said in found)


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


HANGING = """
import hashlib, sys, time
import opdb.cli, opdb.cli.support.patience
opdb.cli.support.patience.PATIENCE_S = {patience_s}

def run() -> None:
    until = time.monotonic() + {hangs_s}
    begun = False
    while time.monotonic() < until:
        try:
            if not begun:
                begun = True
                print("begun", flush=True)
            {hangs}
        except KeyboardInterrupt:
            pass

opdb.cli.import_module = lambda name: sys.modules[__name__]
sys.exit(opdb.cli.main(["harvest"]))
"""
IN_PYTHON = "time.sleep(max(until - time.monotonic(), 0))"
IN_C = "hashlib.pbkdf2_hmac('sha256', b'opdb', b'opdb', 40_000_000)"
"""Some 10 s in which no Python runs in this thread, and so no handler of a signal."""


def hung(program: str, signals: int = 1) -> tuple[int, str, float]:
    """Send SIGINT to a command that hangs; return its status, its errors, and how long it took."""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    began_s = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = process.communicate(timeout=60)
    return process.returncode, said, time.monotonic() - began_s


@pytest.mark.parametrize("hangs", [IN_PYTHON, IN_C], ids=["swallowed", "in C"])
@pytest.mark.parametrize("signals", [1, 3])
def test_a_command_that_goes_on_after_ctrl_c_is_ended(hangs: str, signals: int) -> None:
    program = HANGING.format(patience_s=1.0, hangs_s=20, hangs=hangs)
    status, said, took_s = hung(program, signals)
    assert (status, said) == (130, f"{SAID[1]}\n")
    assert 0.9 < took_s < 9


def test_one_that_ends_in_time_is_let_be() -> None:
    """It swallowed the signal and ended well: what it says stands."""
    program = HANGING.format(patience_s=5.0, hangs_s=1, hangs=IN_PYTHON)
    status, said, took_s = hung(program)
    assert (status, said) == (0, "") and took_s < 4


FORKED = """
import os, signal, sys, time
import opdb.cli, opdb.cli.support.patience
opdb.cli.support.patience.PATIENCE_S = 0.2

def run() -> None:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        time.sleep(20)
        os._exit(1)
    print("begun", flush=True)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    time.sleep(1)

opdb.cli.import_module = lambda name: sys.modules[__name__]
sys.exit(opdb.cli.main(["harvest"]))
"""


def test_a_signal_to_a_process_that_was_forked_off_does_not_end_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
