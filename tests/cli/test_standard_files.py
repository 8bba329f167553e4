"""Closed standard files: real processes, started as a shell starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.paths import python_path
from tests.store import samples
from tests.store.conftest import fill


def shell(line: str, database: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in which `$OPDB` stands for the program on a database."""
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OPDB": f"{sys.executable} -m opdb",
        "OPDB_DB": str(database),
    }
    return subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [
        (">&-", 2, "opdb: nothing can be printed to stdout: it is closed"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("<&- >&- 2>&-", 2, ""),
    ],
)
def test_nothing_is_printed_into_the_database_and_a_lost_answer_is_an_error(
    tmp_path: Path, closed: str, status: int, said: str
) -> None:
    """What was done is kept all the same."""
    database = tmp_path / "opdb.sqlite"
    ran = shell(f"$OPDB harvest mlp {closed}", database)
    assert ran.returncode == status
    assert "Traceback" not in ran.stderr and said in ran.stderr
    with open_store(str(database)) as store:
        assert store.workload_names() == ["mlp"]


@pytest.mark.parametrize(
    "command", ["show kinds", "show kinds --json", "show algorithms", "--version", "--help"]
)
def test_an_answer_that_nobody_gets_is_an_error(tmp_path: Path, command: str) -> None:
    """Long answers fail while they are printed, short ones when they are written at the end."""
    ran = shell(f"$OPDB {command} >&-", tmp_path / "opdb.sqlite")
    assert ran.returncode == 2
    assert ran.stderr == "opdb: nothing can be printed to stdout: it is closed\n"
    assert shell(f"$OPDB {command} >&- 2>&-", tmp_path / "opdb.sqlite").returncode == 2


def test_what_a_terminal_cannot_show_is_replaced(tmp_path: Path) -> None:
    """The sign of micro and the dash for a missing value, on a terminal of plain letters."""
    database = tmp_path / "opdb.sqlite"
    with open_store(str(database)) as store:
        fill(store)
    line = f"$OPDB predict tiny --batch-size 2 --device {samples.DEVICE.slug}"
    usual = shell(line, database)
    plain = shell(f"PYTHONIOENCODING=ascii {line}", database)
    assert (plain.returncode, plain.stderr) == (usual.returncode, usual.stderr)
    assert not usual.stdout.isascii()
    assert plain.stdout == usual.stdout.encode("ascii", "replace").decode()


def test_a_name_that_is_no_text_is_told_as_bytes(tmp_path: Path) -> None:
    database = tmp_path / "opdb.sqlite"
    with open_store(str(database)) as store:
        fill(store)
    ran = shell("$OPDB predict $(printf 'm\\377')", database)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "opdb: 'm\\udcff' is no text in utf-8; give a name that is\n"
