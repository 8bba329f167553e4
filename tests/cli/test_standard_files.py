"""Closed standard files: real processes, started as a shell starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.paths import python_path


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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_file_is_no_error_and_nothing_is_printed_into_the_database(
    tmp_path: Path, closed: str
) -> None:
    database = tmp_path / "opdb.sqlite"
    ran = shell(f"$OPDB harvest mlp {closed}", database)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    with open_store(str(database)) as store:
        assert store.workload_names() == ["mlp"]
