"""Commands on a full disk, in a read-only folder, beside a lock, and on a server that goes away.

Each is one message; what was finished stays, and the next run goes on.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opdb.bench import run as rounds
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, visit
from opdb.derive.__main__ import run as derive
from opdb.records import Visit
from opdb.store import database, open_store
from opdb.store.opening import FILE
from tests import postgres
from tests.cli.conftest import Opdb
from tests.cli.test_bench import CALLS, harvested, measured
from tests.mounts import Mount, mounted
from tests.paths import python_path
from tests.store import samples
from tests.store.conftest import fill
from tests.store.small_set import write_small_set
from tests.store.test_waiting import held

pytestmark = pytest.mark.usefixtures("short")

COMMANDS = {
    "harvest": "harvest mlp --anew",
    "bench": "bench relu --device cpu --duplicates 0",
    "measure": "measure mlp --device cpu --repeats 1",
    "build": "build mlp --device cpu --target 0.1",
    "import": "import {set}",
    "derive": "",
    "export": "export {folder}/set",
}
"""What writes, on a database in which little is pending."""

RUNS = {"derive": derive}
"""What is a command of its own."""

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
    ran = opdb(*asked, "--db", database, run=RUNS.get(command))
    assert ran.status in (0, 1 if command in HALF_DONE else 0), ran.err
    assert opdb("--check", "--db", database, run=derive).status == 0


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
        ran = opdb(*asked, "--quiet", "--db", database, run=RUNS.get(command))
    said = ran.err.strip().splitlines()
    assert ran.status == 2, (ran.out, ran.err)
    assert len(said) == 1 or command == "build", ran.err
    assert any(word in said[-1] for word in ("disk", "space", "cannot be written", "Read-only")), (
        ran.err
    )
    assert "Traceback" not in ran.err and "unforeseen" not in ran.err
    assert rows(database) >= before
    assert not (mount.folder / "set" / FILE).exists()
    assert_goes_on(opdb, command, asked, database)


@pytest.mark.parametrize("command", ["harvest", "bench"])
def test_a_command_waits_for_a_lock_and_loses_nothing(
    command: str,
    opdb: Opdb,
    begun: Path,
    small_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour would be no different: the wait has no end of its own."""
    monkeypatch.setattr(database, "SAID_AFTER_S", 0.2)
    asked, since_s = words(command, small_set, tmp_path), time.monotonic()
    with held(begun, 1.5):
        ran = opdb(*asked, "--db", begun, run=RUNS.get(command))
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
        assert store.costs(board.uuid).keys() == {
            c.key for c in store.configurations_among(None, None)
        }


FULL = Path("/dev/full")

needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in which `$OPDB` stands for the program, on a database of the folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OPDB": shlex.join([sys.executable, "-m", "opdb"]),
        "OPDB_DB": str(folder / "opdb.sqlite"),
    }
    environment.pop("PYTHONUNBUFFERED", None)  # what is printed is written at the end
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True
    )


@needs_full
def test_a_full_stdout_is_one_line(tmp_path: Path) -> None:
    for command in ("sweep --list-algorithms", "validate --help", "--version"):
        found = shell(f"$OPDB {command} >/dev/full", tmp_path)
        assert found.returncode == 2
        assert found.stderr.splitlines()[-1].endswith("No space left on device")
        assert found.stderr.count("opdb:") == 1 and "Traceback" not in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [
        (">&-", 2, "opdb: [Errno 9] Bad file descriptor"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("<&- >&- 2>&-", 2, ""),
    ],
)
def test_nothing_is_printed_into_the_database_and_a_lost_answer_is_an_error(
    tmp_path: Path, closed: str, status: int, said: str
) -> None:
    ran = shell(f"$OPDB harvest mlp {closed}", tmp_path)
    assert ran.returncode == status
    assert "Traceback" not in ran.stderr and said in ran.stderr
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert store.workload_names() == ["mlp"]


def test_what_a_terminal_or_its_encoding_cannot_show_is_replaced(tmp_path: Path) -> None:
    """The sign of micro and the dash for a missing value."""
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        fill(store)
    line = f"$OPDB predict tiny --batch-size 2 --device {samples.DEVICE.slug}"
    usual = shell(line, tmp_path)
    plain = shell(f"PYTHONIOENCODING=ascii {line}", tmp_path)
    assert (plain.returncode, plain.stderr) == (usual.returncode, usual.stderr)
    assert not usual.stdout.isascii()
    assert plain.stdout == usual.stdout.encode("ascii", "replace").decode()


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


@pytest.mark.parametrize("delay_s", [0.0, 0.2])
def test_ctrl_c_is_one_line_at_any_moment(tmp_path: Path, delay_s: float) -> None:
    status, said = interrupted(BEGIN + "sys.exit(main())", delay_s, tmp_path / "opdb.sqlite")
    assert status == 130, said
    assert said.strip() in SAID
