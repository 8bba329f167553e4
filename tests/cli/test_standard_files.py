"""Closed standard files: real processes, started as a shell starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.paths import python_path

PLAIN = Path(__file__).parents[1] / "data" / "plain_set" / "nvidia-h200"


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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_closed_file_is_no_error_and_nothing_is_printed_into_the_database(
    tmp_path: Path, closed: str
) -> None:
    database = tmp_path / "opdb.sqlite"
    ran = shell(f"$OPDB import {PLAIN} {closed}", database)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    with open_store(str(database)) as store:
        assert store.workload_names() and [each.slug for each in store.devices()] == [PLAIN.name]


def test_torch_itself_finds_nothing_wrong_where_all_are_closed(tmp_path: Path) -> None:
    database = tmp_path / "opdb.sqlite"
    ran = shell("$OPDB harvest mlp <&- >&- 2>&-", database)
    assert ran.returncode == 0
    with open_store(str(database)) as store:
        assert store.workload_names() == ["mlp"]
