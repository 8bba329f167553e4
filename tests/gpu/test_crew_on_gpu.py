"""Workers on two GPUs of one host. Run it alone: `pytest tests/gpu/test_crew_on_gpu.py`.

OPDB_CALIBRATED names a database with the calibrations of both boards, which are then not made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from opdb.derive.costs import FOREIGN_PROCESS
from opdb.store import open_store

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="this machine has fewer than two GPUs"
)


def opdb(*arguments: object) -> Any:
    """Run a command in a process of its own: this one is to leave no context on a board."""
    command = [sys.executable, "-m", "opdb", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    if torch.cuda.is_initialized():
        pytest.skip("this process is on a board already: run this file alone")
    path = tmp_path / "opdb.sqlite"
    if given := os.environ.get("OPDB_CALIBRATED"):
        shutil.copy(given, path)
    opdb("harvest", "resnet18", "--batch-size", 32, "--db", path)
    return path


def test_two_boards_share_a_list_and_see_nothing_of_each_other(database: Path) -> None:
    document = opdb("bench", "--devices", "0,1", "--db", database)
    assert document["failures"] == []
    one, other = document["boards"]
    assert one["board"] != other["board"] and one["device"] == other["device"]
    assert one["configurations"] and other["configurations"], "each had a share"
    with open_store(str(database)) as store:
        measured = [
            {visit.configuration for visit in store.visits(board.uuid, role="measurement")}
            for board in store.boards(one["device"])
        ]
        assert not measured[0] & measured[1], "all visits of a configuration are on one board"
        assert measured[0] | measured[1] == {c.key for c in store.configurations_among(None, None)}
        for board in store.boards(one["device"]):
            flags = Counter(flag for v in store.visits(board.uuid) for flag in v.flags)
            assert not [flag for flag in flags if flag.startswith(FOREIGN_PROCESS)]
            called = {(v.configuration, v.form) for v in store.host_visits(board.uuid)}
            assert {key for key, _ in called} >= measured[0] | measured[1]
            for campaign in store.campaigns(board=board.uuid):
                assert campaign.environment["workers"] == "2"
