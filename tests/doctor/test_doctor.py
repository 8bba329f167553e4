"""Each fault, planted beneath the checks: it is found, nothing else is, and the advice fits."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import nvitop
import pynvml
import pytest
import torch

from opdb import meters
from opdb.doctor import Finding, database_and_disk, examine, works
from opdb.store import open_store
from opdb.store.schema import SCHEMA
from tests import postgres
from tests.doctor.conftest import Machine, refuse


def the_fault(name: str, found: str, advice: str, *, blocks: bool) -> None:
    """Assert that one check alone is not fine, with these words."""
    findings = examine()
    [fault] = [each for each in findings if each.advice]
    assert fault.check == name and fault.advice and fault.advice.endswith(".")
    assert re.search(found, fault.found), fault.found
    assert re.search(advice, fault.advice), fault.advice
    healthy, words = works(findings)
    assert fault.blocks == blocks and healthy != blocks
    assert not blocks or words.endswith(f"put right: {name}")


def test_a_healthy_machine(machine: Machine) -> None:
    findings = examine()
    assert {each.result for each in findings} == {"fine"}
    assert works(findings) == (True, "a GPU can be measured here")
    found = {each.check: each.found for each in findings}
    assert found["GPU"] == "NVIDIA H200, driver 1.0"
    assert found["power limit"] == "700 W"
    assert re.fullmatch(r"\d+ new samples, \d+ ticks of the energy counter", found["power"])
    assert found["database"] == str(machine.database)


# The driver, its boards, and torch


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "Not Found"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "mismatch"),
    ],
)
def test_no_gpu(machine: Machine, code: int, said: str) -> None:
    machine.start_error, machine.gpus = code, 0
    the_fault("GPU", said, "bench --device cpu", blocks=True)


def test_a_board_that_was_lost(machine: Machine) -> None:
    machine.lost = True
    the_fault("GPU state", "cannot reach it", "dmesg for Xid", blocks=True)


def test_a_foreign_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.processes = {4321: "trainer"}
    the_fault("processes", r"^4321 \(trainer\)$", "Stop them or wait", blocks=True)
    monkeypatch.setattr(nvitop, "Device", lambda **_: refuse())
    the_fault("processes", "not known", "nvidia-smi", blocks=False)


def test_a_torch_that_sees_not_all_gpus(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    machine.gpus = 0
    the_fault("torch", "CUDA none, sees 0 of 1 GPUs", "Install a CUDA build", blocks=True)
    machine.gpus, machine.boards = 1, 2
    the_fault("torch", "sees 1 of 2 GPUs", "CUDA_VISIBLE_DEVICES", blocks=False)


def test_a_torch_that_cannot_be_imported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    the_fault("torch", "torch", "--force-reinstall", blocks=True)


def test_meters_that_are_lacking(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ticks = False
    the_fault("power", " 0 ticks of the energy counter", "opdb doctor --calibrate", blocks=False)
    machine.samples, machine.ticks = False, True
    the_fault("power", "^0 new samples, ", "opdb doctor --calibrate", blocks=False)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda *_: refuse())
    the_fault("power", "^0 new samples, 0 ticks", "energies cannot", blocks=True)


def test_clocks(machine: Machine) -> None:
    machine.reasons = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    the_fault("clocks", "held back: hardware thermal slowdown", "cooling", blocks=True)
    machine.reasons = pynvml.nvmlClocksEventReasonSwPowerCap
    assert {each.result for each in examine()} == {"fine"}


# The tools around torch


def test_tools_that_are_lacking(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.programs / "gcc").unlink()
    said = r"^no C compiler \(clang or gcc\) on PATH$"
    the_fault("torch.compile", said, r"Modes that compile need it.*apt install", blocks=False)
    machine.program("gcc")
    (machine.programs / "ncu").unlink()
    the_fault("Nsight Compute", "no ncu on PATH", "Only hardware counters", blocks=False)
    machine.program("ncu")
    monkeypatch.setattr(meters, "unavailable_reason", lambda: "RAPL cannot be read")
    the_fault("processor energy", "RAPL cannot be read", "bench --device cpu", blocks=False)


# The database and its disk


def test_a_full_disk(machine: Machine) -> None:
    machine.free_bytes = 0
    the_fault("disk", f"^0 B free in {machine.folder}$", "Free some space", blocks=True)


def test_an_empty_database_is_looked_at_and_left_empty(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.sqlite").touch()
    [database, _] = database_and_disk(str(empty))
    assert not database.blocks and empty.stat().st_size == 0


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cake (slice)")


def of_another_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE opdb_schema SET number = 99")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (garbage, "it is not an opdb database"),
        (foreign, "it is not an opdb database"),
        (of_another_schema, f"its schema 99 is not the one .*{SCHEMA}"),
        (a_pipe, "it is not a file"),
    ],
)
def test_a_database_that_cannot_be_used(
    machine: Machine, spoil: Callable[[Path], None], found: str
) -> None:
    spoil(machine.database)
    the_fault("database", found, "Name another with --db", blocks=True)
    assert sorted(path.name for path in machine.folder.glob("opdb.sqlite*")) == ["opdb.sqlite"]


def test_a_database_that_is_not_there_yet(machine: Machine) -> None:
    machine.database.unlink()
    [found] = [each.found for each in examine() if each.check == "database"]
    assert found == f"{machine.database}: none yet, the first command makes it"
    assert not machine.database.exists()


def test_a_database_that_only_can_be_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: access(path, mode) and Path(path) != machine.database
    )
    the_fault("database", "cannot be written", "--db", blocks=True)


def database_finding(url: str) -> Finding:
    return next(each for each in examine(url) if each.check == "database")


def test_a_server_that_does_not_answer(machine: Machine) -> None:
    pytest.importorskip("psycopg")
    fault = database_finding("postgresql+psycopg://user:secret@localhost:1/opdb")
    assert fault.blocks and "Connection refused" in fault.found and "secret" not in fault.found


def test_a_server_that_answers(machine: Machine, postgres_server: postgres.Server) -> None:
    url = postgres_server.new_database()
    name = url.partition("?")[0].rpartition("/")[2]
    assert database_finding(url).result == "fine", "empty"
    open_store(url).close()
    postgres_server.sql("UPDATE opdb_schema SET number = 99", name)
    assert "its schema 99" in database_finding(url).found
    assert '"nowhere" does not exist' in database_finding(postgres_server.url("nowhere")).found
