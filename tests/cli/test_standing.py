"""Commands take a stored workload where a harvest would find the same, and else harvest anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opdb.records import Workload
from opdb.store import open_store
from opdb.store.schema import workload as table
from tests.cli.conftest import Ran
from tests.paths import python_path

ON_CPU = ("--device", "cpu", "--quiet")
STOOD = "1 workload of 1 stood in"

PROGRAM = """
import json, sys
from opdb.bench import model
from opdb.cli import main
model.SETTLE_S, model.WINDOW_S, model.MAX_REDONE, model.HOSTS_REDONE = 0.002, 0.02, 0, 0
sys.exit(max(main(arguments) for arguments in json.loads(sys.argv[1])))
"""


def ran(path: Path, *commands: tuple[str, ...]) -> Ran:
    """Run commands in a process that has imported nothing of the tests."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env={**os.environ, "OPDB_DB": str(path), "PYTHONPATH": python_path()},
    )
    assert done.returncode in (0, 1), done.stderr  # a build may miss its target
    return Ran(done.returncode, done.stdout, done.stderr)


def stored(path: Path, **chosen: Any) -> list[Workload]:
    with open_store(str(path)) as store:
        return store.workloads(**chosen)


def shortened(path: Path, **chosen: Any) -> Workload:
    """Take the first call off a stored workload: whoever harvests it anew puts it back."""
    with open_store(str(path)) as store:
        [workload] = store.workloads(**chosen)
        with store.reading() as connection:
            known = connection.scalar(
                select(table.c.fingerprint).where(table.c.key == workload.key)
            )
        short = replace(workload, calls=workload.calls[1:])
        store.save_workload(short, fingerprint=known)
    return short


@pytest.mark.slow
def test_commands_take_what_stands(tmp_path: Path) -> None:
    path = tmp_path / "opdb.sqlite"
    ran(path, ("harvest", "mlp", "--quiet"))
    [whole], short = stored(path), shortened(path)
    again = ran(
        path,
        ("measure", "mlp", "--repeats", "1", *ON_CPU),
        ("modes", "mlp", "--modes", "eager", "--repeats", "1", *ON_CPU),
        ("build", "mlp", "--gpu-seconds", "0", *ON_CPU),
        ("harvest", "mlp"),
    )
    assert STOOD in again.err and stored(path) == [short]
    assert STOOD not in ran(path, ("harvest", "mlp", "--anew")).err and stored(path) == [whole]
