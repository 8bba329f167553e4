"""Commands on a full disk, in a read-only folder, beside a lock, and on a server that goes away.

Each is one message; what was finished stays, and the next run goes on.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opdb.bench import run as rounds
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, visit
from opdb.records import Visit
from opdb.store import open_store, waiting
from tests import postgres
from tests.cli.conftest import Opdb
from tests.cli.test_bench import CALLS, harvested, measured
from tests.mounts import Mount, mounted
from tests.store.small_set import write_small_set
from tests.store.test_waiting import held

pytestmark = pytest.mark.usefixtures("short")

COMMANDS = {
    "harvest": "harvest mlp --anew",
    "bench": "bench relu --device cpu --duplicates 0",
    "measure": "measure mlp --device cpu --repeats 1",
    "build": "build mlp --device cpu --target 0.1",
    "import": "import {set}",
    "derive": "derive",
    "export": "export {folder}/set",
}
"""What writes, on a database in which little is pending."""

HALF_DONE = ("build",)
"""What may say of a busy machine that a prediction is not good enough."""


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "set"
    write_small_set(folder)
    return folder


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with mounted(tmp_path / "mounted", "8m") as made:
        yield made


@pytest.fixture
def begun(tmp_path: Path, opdb: Opdb) -> Path:
    """A database of which a part is measured."""
    path = harvested(tmp_path / "begun.sqlite")
    ran = opdb("bench", "add", "--device", "cpu", "--quiet", "--duplicates", 0, "--db", path)
    assert ran.status == 0, ran.err
    return path


def rows(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        asked = "SELECT id FROM visit UNION SELECT id FROM model_run UNION SELECT key FROM workload"
        return {row[0] for row in connection.execute(asked)}


def words(command: str, small_set: Path, folder: Path) -> list[str]:
    return COMMANDS[command].format(set=small_set, folder=folder).split()


def assert_goes_on(opdb: Opdb, command: str, asked: list[str], database: Path) -> None:
    ran = opdb(*asked, "--db", database)
    assert ran.status in (0, 1 if command in HALF_DONE else 0), ran.err
    assert opdb("derive", "--check", "--db", database).status == 0


@pytest.mark.parametrize("how", ["full", "read_only"])
@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_can_be_written_nothing_is_lost(
    command: str, how: str, opdb: Opdb, begun: Path, mount: Mount, small_set: Path
) -> None:
    database = mount.folder / "opdb.sqlite"
    shutil.copy(begun, database)
    asked = words(command, small_set, mount.folder)
    before = rows(database)
    with mount.full() if how == "full" else mount.read_only():
        ran = opdb(*asked, "--quiet", "--db", database)
    said = ran.err.strip().splitlines()
    assert ran.status == 2, (ran.out, ran.err)
    assert len(said) == 1 or command == "build", ran.err
    assert any(word in said[-1] for word in ("disk", "space", "cannot be written", "Read-only")), (
        ran.err
    )
    assert "Traceback" not in ran.err and "unforeseen" not in ran.err
    assert rows(database) >= before
    assert not (mount.folder / "set" / "device.csv").exists()
    assert_goes_on(opdb, command, asked, database)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "export"])
def test_a_command_waits_for_a_lock_and_loses_nothing(
    command: str,
    opdb: Opdb,
    begun: Path,
    small_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour would be no different: the wait has no end of its own."""
    monkeypatch.setattr(waiting, "SAID_AFTER_S", 0.2)
    asked, since_s = words(command, small_set, tmp_path), time.monotonic()
    with held(begun, 1.5):
        ran = opdb(*asked, "--db", begun)
    assert ran.status in (0, 1 if command in HALF_DONE else 0), ran.err
    assert time.monotonic() - since_s > 1.5
    assert_goes_on(opdb, command, asked, begun)


def test_a_bench_whose_server_goes_away_keeps_its_visits_and_the_next_goes_on(
    opdb: Opdb, postgres_server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new_database()
    shard = harvested(tmp_path / "harvested.sqlite")
    with open_store(str(shard)) as source, open_store(url) as store:
        for workload in source.workloads():
            store.save_workload(workload)
    made: list[str] = []

    def visited(session: Session, request: VisitRequest) -> list[Visit]:
        found = visit(session, request)
        if len(made) == 2:
            postgres_server.stop("fast")  # killed, this one forgets commits: it flushes late
        made.extend(each.id for each in found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "visit", visited)
        ran = opdb("bench", "--device", "cpu", "--quiet", "--duplicates", 0, "--db", url)
    postgres_server.start()
    assert ran.status == 2 and ran.err.count("\n") == 1, ran.err
    assert "ended the connection; run the command again" in ran.err or "be reached" in ran.err
    with open_store(url) as store:
        [board] = store.boards()
        kept = [each.id for each in store.visits(board.uuid)]
    assert kept == made[:2], "the third was not stored, and not said to be"
    ran = opdb("bench", "--device", "cpu", "--quiet", "--duplicates", 0, "--db", url)
    assert ran.status == 0, ran.err
    assert measured(url) == len(CALLS)
    with open_store(url) as store:
        assert store.costs(board.uuid).keys() == store.usage().keys()
