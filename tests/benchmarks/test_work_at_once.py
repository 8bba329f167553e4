"""Two processes harvest and predict beside a bench; a fault that is put in is found."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.work_at_once import check, empty, measure


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that the processes filled and that was found whole."""
    path = tmp_path_factory.mktemp("work") / "opdb.sqlite"

    def fresh(lap: int) -> str:
        empty(str(path))
        return str(path)

    done = measure(fresh, processes=2, seconds=4.0)
    assert done["laps"] and done["visits"] and done["energies"]
    return path


@pytest.fixture
def copy(worked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(worked, tmp_path / "opdb.sqlite"))


def noted(path: Path) -> set[str]:
    """Return what the processes noted, all of which was found stored."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT id FROM visit UNION SELECT key FROM workload")
        return {key for (key,) in found}


def test_what_is_not_stored_or_was_never_said_so_is_found(copy: Path) -> None:
    said = noted(copy)
    assert check(str(copy), said)["workloads"] > 1
    with pytest.raises(SystemExit, match=r"saved and lost: \['another'\]"):
        check(str(copy), said | {"another"})
    with pytest.raises(SystemExit, match="stored and never said so"):
        check(str(copy), said - {next(iter(said))})


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("UPDATE workload SET sequence = '0' WHERE id = 2", "half a workload"),
        ("DELETE FROM cost", "not what the visits give"),
        ("UPDATE tally SET visits = visits + 1", "counted wrongly"),
        ("INSERT INTO claim VALUES ('bench', 'x', 'worker', 'board', 9e9)", "still claimed"),
    ],
)
def test_what_is_half_there_is_found(copy: Path, fault: str, found: str) -> None:
    said = noted(copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(fault)
    with pytest.raises(SystemExit, match=found):
        check(str(copy), said)
