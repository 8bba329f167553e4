"""Each fault, planted beneath the checks: it is found, nothing else is, and the advice fits."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import nvitop
import pynvml
import pytest
import torch

from opdb.distribution import install
from opdb.doctor import Finding, examine, works
from opdb.meters import rapl
from opdb.store import open_store
from opdb.store.schema import SCHEMA
from tests import postgres
from tests.doctor.conftest import Machine, refuse
from tests.meters.test_nvml import UUID


def found_on(url: str | None = None) -> tuple[list[Finding], bool, str]:
    machine, findings = examine(url)
    return findings, *works(machine, findings)


def the_fault(name: str, found: str, advice: str, *, blocks: bool) -> Finding:
    """Assert that one check alone is not fine, with these words, and return its finding."""
    findings, healthy, words = found_on()
    wrong = [each for each in findings if each.result != "fine"]
    assert [each.check for each in wrong] == [name]
    fault = wrong[0]
    assert fault.result == "not"
    assert re.search(found, fault.found), fault.found
    assert re.search(advice, fault.advice), fault.advice
    assert fault.advice.endswith("."), "a sentence"
    assert fault.blocks == blocks
    assert healthy != blocks
    assert not blocks or name in words
    return fault


def test_a_healthy_machine(machine: Machine) -> None:
    findings, healthy, words = found_on()
    assert {each.result for each in findings} == {"fine"}
    assert (healthy, words) == (True, "a GPU can be measured here")
    found = {each.check: each.found for each in findings}
    assert found["GPU"] == "NVIDIA H200"
    assert found["cuDNN"] == "9.19.0"
    assert found["CUDA"] == "driver up to 13.1, torch built for 13.0"
    assert found["power limit"] == "700 W, the default"
    assert found["instant power"] == "121 W"
    assert re.fullmatch(r"ticked \d+ × within .+", found["energy counter"])
    assert found["database"].startswith(f"{machine.database}, ")


# The ten


def test_no_gpu(machine: Machine) -> None:
    machine.start_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    machine.gpus = 0
    findings, healthy, words = found_on()
    assert not healthy
    assert words == (
        "no GPU can be measured here, for there is none; harvest and predict work, "
        "and bench --device cpu"
    )
    by_name = {each.check: each for each in findings}
    assert by_name["GPU"].found == "none"
    assert by_name["GPU"].blocks
    assert "opdb bench on a machine with an NVIDIA GPU" in str(by_name["GPU"].advice)
    assert [each.check for each in findings if each.result == "not"] == ["GPU"]
    assert by_name["driver"].result == by_name["CUDA"].result == "unknown"
    assert not [each for each in findings if each.board is not None]


def test_mig(machine: Machine) -> None:
    machine.mig = 1
    advice = f"GPU without MIG, or switch it off: sudo nvidia-smi -i {UUID} -mig 0"
    fault = the_fault("MIG", "the power of an instance cannot be read", advice, blocks=True)
    assert fault.board == 0


def test_a_foreign_process(machine: Machine) -> None:
    machine.processes = {4321: "trainer"}
    the_fault("processes", r"^4321 \(trainer\)$", "Stop them or wait for them", blocks=True)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("g++", r"no C\+\+ compiler \(g\+\+\) that works"),
        ("gcc", "no C compiler that works"),
    ],
)
def test_no_compiler(machine: Machine, lacking: str, said: str) -> None:
    (machine.programs / lacking).unlink()
    the_fault("compiler", f"^{said}$", r"torch\.compile needs it.*apt install g\+\+", blocks=False)


def test_a_compiler_that_does_not_start_is_none(machine: Machine) -> None:
    machine.program("g++").write_text("#!/bin/sh\nexit 1\n")
    the_fault("compiler", r"no C\+\+ compiler \(g\+\+\) that works", r"g\+\+", blocks=False)


def test_no_ncu(machine: Machine) -> None:
    (machine.programs / "ncu").unlink()
    the_fault("Nsight Compute", "no ncu on PATH", "install Nsight Compute", blocks=False)


def test_a_full_disk(machine: Machine) -> None:
    machine.free_bytes = 0
    said = r"^0 B free in .* \(the database( and compiled kernels)?\)$"
    findings, healthy, words = found_on()
    full = [each for each in findings if each.check == "disk"]
    assert full and {each.result for each in findings if each not in full} == {"fine"}
    assert re.match(said, full[0].found)
    assert re.search("Free some space in .*--db", str(full[0].advice))
    assert all(each.blocks for each in full) and not healthy
    assert words.endswith("put right: disk; nothing can be stored either")


def test_a_missing_extra(machine: Machine) -> None:
    machine.requires = [*machine.requires, 'no-such-package[c]>=3; extra == "postgres"']
    the_fault(
        "extra postgres",
        "^missing: no-such-package$",
        f"Only a PostgreSQL database needs it: {re.escape(install('postgres'))}",
        blocks=False,
    )


def test_a_cpu_only_torch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    machine.gpus = 0
    findings, healthy, _ = found_on()
    fault = next(each for each in findings if each.check == "torch")
    assert fault.blocks and not healthy
    assert fault.found.endswith("CPU-only build beside a GPU")
    assert "Install a CUDA build: pip install" in str(fault.advice)
    assert [each.check for each in findings if each.result == "not"] == ["torch"]
    assert {each.check for each in findings if each.result == "unknown"} == {"CUDA", "cuDNN"}


def test_a_counter_that_does_not_tick(machine: Machine) -> None:
    machine.ticks = False
    the_fault(
        "energy counter",
        r"does not tick: the same reading for \d+ ms",
        "opdb doctor --calibrate --again, which keeps it from being used",
        blocks=False,
    )


# More of the driver and its boards


def test_a_cpu_only_torch_without_a_gpu_is_a_note(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    machine.boards = machine.gpus = 0
    findings, _, words = found_on()
    fault = next(each for each in findings if each.check == "torch")
    assert (fault.result, fault.blocks) == ("not", False)
    assert str(fault.advice).startswith("Enough without a GPU. To measure one: install")
    assert words.startswith("no GPU can be measured here, for there is none")


@pytest.mark.parametrize(
    ("code", "said", "advice"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "Not Found", "Install the NVIDIA driver"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "mismatch", "reboot, or unload"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "ermission", "access to /dev/nvidia"),
    ],
)
def test_a_gpu_without_its_driver(machine: Machine, code: int, said: str, advice: str) -> None:
    device = machine.pci / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    machine.start_error, machine.gpus = code, 0
    findings, healthy, words = found_on()
    by_name = {each.check: each for each in findings}
    assert by_name["GPU"].found == "1 NVIDIA GPU on the PCI bus, none offered by a driver"
    assert "--gpus all" in str(by_name["GPU"].advice)
    assert said in by_name["driver"].found
    assert advice in str(by_name["driver"].advice)
    assert not healthy and "put right: GPU, driver" in words


def test_a_board_that_was_lost(machine: Machine) -> None:
    machine.lost = True
    the_fault("GPU state", "cannot reach it", "dmesg for Xid", blocks=True)


def test_a_driver_that_is_too_old(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: 12080)
    the_fault("CUDA", "up to 12.8, torch built for 13.0", "Update the driver", blocks=True)


def test_a_torch_that_sees_no_gpu(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.gpus = 0
    the_fault("torch", "sees no GPU$", "nvidia-smi", blocks=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    the_fault("torch", "CUDA_VISIBLE_DEVICES=''", "Unset CUDA_VISIBLE_DEVICES", blocks=True)


def test_a_torch_that_sees_some_gpus(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine.boards = 2
    said = r"sees 1 of 2 GPUs \(CUDA_VISIBLE_DEVICES=0\)"
    the_fault("torch", said, "Only those can be measured", blocks=False)
    findings, *_ = found_on()
    assert [each.board for each in findings if each.check == "MIG"] == [0, 1]
    assert findings[0].found == "2 × NVIDIA H200"


@pytest.mark.parametrize(("capability", "runs"), [((8, 6), True), ((10, 0), True), ((7, 5), False)])
def test_a_torch_without_kernels_for_the_gpu(
    machine: Machine, capability: tuple[int, int], runs: bool
) -> None:
    machine.capability = capability
    if runs:
        assert found_on()[1]
    else:
        the_fault("torch", "without kernels for NVIDIA H200", "architecture", blocks=True)


def test_a_torch_that_cannot_be_imported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    findings, healthy, words = found_on()
    fault = next(each for each in findings if each.check == "torch")
    assert fault.blocks and not healthy
    assert "torch" in fault.found and "--force-reinstall" in str(fault.advice)
    assert words.endswith("; predict works")


def test_no_cudnn(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    the_fault("cuDNN", "finds none", "pip install --force-reinstall torch", blocks=True)


def test_processes_that_cannot_be_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvitop, "Device", lambda **_: refuse())
    findings, healthy, _ = found_on()
    fault = next(each for each in findings if each.result != "fine")
    assert (fault.check, fault.result, healthy) == ("processes", "unknown", True)


def test_work_that_nobody_shows(machine: Machine) -> None:
    machine.utilization = 97
    the_fault("processes", "97% busy", "outside this container", blocks=False)


def test_meters_that_are_lacking(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.samples = False
    the_fault("power samples", "the driver gives none", "opdb doctor --calibrate", blocks=False)
    for call in ("TotalEnergyConsumption", "FieldValues"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{call}", lambda *_: refuse())
    findings, healthy, _ = found_on()
    blocking = {each.check: each.blocks for each in findings if each.result != "fine"}
    assert blocking == {"power samples": True, "energy counter": False, "instant power": False}
    assert not healthy


def test_clocks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.application_clock = 1200
    the_fault("clocks", r"application clocks 1200 MHz \(default 1980", "-rac", blocks=False)
    machine.application_clock = 1980
    machine.reasons = pynvml.nvmlClocksEventReasonSwPowerCap
    the_fault("clocks", "held back: software power cap", "idle", blocks=False)
    machine.reasons = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    the_fault("clocks", "held back: hardware thermal slowdown", "cooling", blocks=True)
    machine.reasons = 0
    monkeypatch.setattr(pynvml, "nvmlDeviceGetApplicationsClock", lambda *_: refuse())
    assert found_on()[1], "a driver without application clocks"


def test_a_power_limit(machine: Machine) -> None:
    machine.power_limit = 500_000
    the_fault("power limit", "500 W, default 700 W", f"{UUID} -pl 700", blocks=False)


# More of the machine


def test_ncu_that_is_not_on_the_path(machine: Machine) -> None:
    (machine.programs / "ncu").unlink()
    folder = machine.folder / "nsight" / "2026.1"
    folder.mkdir(parents=True)
    (folder / "ncu").touch()
    the_fault("Nsight Compute", "not on PATH", rf"export PATH=\$PATH:{folder}\.", blocks=False)


def test_the_permission_to_read_counters(machine: Machine) -> None:
    machine.params.write_text("RmProfilingAdminOnly: 1\n")
    advice = "NVreg_RestrictProfilingToAdminUsers=0.*--cap-add=SYS_ADMIN"
    the_fault("counter permission", "administrators alone", advice, blocks=False)
    (machine.folder / "status").write_text("CapEff:\t000001ffffffffff\n")
    assert {each.result for each in found_on()[0]} == {"fine"}
    machine.params.unlink()
    told = {each.check: each.result for each in found_on()[0]}
    assert told["counter permission"] == "unknown"


def test_no_headers_no_triton(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "include" / "Python.h").unlink()
    the_fault("compiler", "^no Python.h$", "python3-dev", blocks=False)
    (machine.folder / "include" / "Python.h").touch()
    version = importlib.metadata.version

    def without(name: str) -> str:
        if "triton" in name:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without)
    the_fault("Triton", "^none$", "pip install triton", blocks=False)


@pytest.mark.parametrize(
    ("switch", "value"),
    [("TORCHDYNAMO_DISABLE", "1"), ("TORCH_COMPILE_DISABLE", "1"), ("PYTORCH_JIT", "0")],
)
def test_compiling_that_is_switched_off(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, switch: str, value: str
) -> None:
    monkeypatch.setenv(switch, value)
    said = f"^switched off by {switch}={value}$"
    the_fault("compiling", said, f"unset {switch}", blocks=False)
    monkeypatch.setenv(switch, "0" if value == "1" else "1")
    assert {each.result for each in found_on()[0]} == {"fine"}


def test_a_compiler_of_ones_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++-13")
    the_fault("compiler", r"no C\+\+ compiler \(g\+\+-13\)", "torch.compile", blocks=False)
    machine.program("g++-13")
    assert found_on()[1]


@pytest.mark.parametrize("command", ["launcher g++", "g++ -fsome-option", "'launcher' g++"])
def test_a_compiler_with_a_launcher_or_arguments(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Torch takes one since 2.15; before, it looks for a program of that whole name."""
    monkeypatch.setenv("CXX", command)
    machine.program("launcher")
    version = importlib.metadata.version
    for of_torch, takes in (("2.11.0", False), ("2.15.0+cu132", True), ("3.0", True)):
        monkeypatch.setattr(
            importlib.metadata, "version", lambda n, v=of_torch: v if n == "torch" else version(n)
        )
        if takes:
            assert {each.result for each in found_on()[0]} == {"fine"}
        else:
            said = re.escape(f"no C++ compiler ({command}) that works")
            the_fault("compiler", f"^{said}$", r"torch\.compile", blocks=False)


@pytest.mark.parametrize("command", ["", "'g++", "launcher g++"])
def test_no_command_is_no_compiler(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Nothing, a quotation without an end, a launcher that is not there."""
    monkeypatch.setenv("CXX", command)
    the_fault("compiler", r"^no C\+\+ compiler \(", r"torch\.compile", blocks=False)


def test_a_c_compiler_is_one_program(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton starts what CC says as it stands, an empty text too."""
    for command in ("launcher gcc", ""):
        monkeypatch.setenv("CC", command)
        the_fault("compiler", "^no C compiler.* that works$", r"torch\.compile", blocks=False)
    monkeypatch.setenv("CC", "cc-13")
    the_fault("compiler", r"^no C compiler \(cc-13\) that works$", "apt install", blocks=False)


def test_no_energy_of_the_processor(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapl, "unavailable_reason", lambda: "RAPL cannot be read")
    the_fault("processor energy", "RAPL cannot be read", "bench --device cpu", blocks=False)


def test_a_package_that_was_not_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", none)
    told = {each.check: each.result for each in found_on()[0]}
    assert told["extras"] == "unknown"


def test_a_disk_that_is_low_or_not_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.free_bytes = 10**9
    low = [each for each in found_on()[0] if each.result != "fine"]
    assert {(each.check, each.blocks) for each in low} == {("disk", False)}

    def gone(_: Path) -> None:
        raise OSError("gone")

    monkeypatch.setattr(shutil, "disk_usage", gone)
    assert {e.result for e in found_on()[0] if e.check == "disk"} == {"unknown"}


# The database


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)


def truncated(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def damaged(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    path.write_bytes(whole)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cake (slice)")


def of_another_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE opdb_schema SET number = 99")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "found", "advice"),
    [
        (garbage, "file is not a database", "restore it"),
        (truncated, "", "restore it"),
        (damaged, "", "restore it"),
        (foreign, "it is not an opdb database", "Name another with --db"),
        (of_another_schema, f"schema 99; this opdb reads schema {SCHEMA}", "Move the file away"),
        (a_folder, "it is not a file", "Name another with --db"),
        (a_pipe, "it is not a file", "Name another with --db"),
    ],
)
def test_a_database_that_cannot_be_used(
    machine: Machine, spoil: Callable[[Path], None], found: str, advice: str
) -> None:
    spoil(machine.database)
    fault = the_fault("database", found, advice, blocks=True)
    assert spoil not in (foreign, a_folder, a_pipe) or "delete" not in str(fault.advice)
    assert sorted(path.name for path in machine.folder.glob("opdb.sqlite*")) == ["opdb.sqlite"]


def test_an_index_without_its_rows(machine: Machine) -> None:
    """SQLite's quick check passes such a file, and a query by that index loses the rows."""
    with closing(sqlite3.connect(machine.database)) as owner:
        owner.execute("CREATE TABLE spare (a)")
        owner.execute("CREATE INDEX spare_a ON spare (a) WHERE a > 1")
        owner.execute("INSERT INTO spare VALUES (1)")
        owner.execute("PRAGMA writable_schema = ON")
        owner.execute("UPDATE sqlite_master SET sql = replace(sql, '> 1', '> 0')")
        owner.commit()
    the_fault("database", "missing from index spare_a", "restore it", blocks=True)


def test_a_row_that_refers_to_none(machine: Machine) -> None:
    with closing(sqlite3.connect(machine.database)) as owner:
        owner.execute("CREATE TABLE spare (a REFERENCES workload (id))")
        owner.execute("INSERT INTO spare VALUES (99)")
        owner.commit()
    the_fault("database", "row 1 of spare refers to a missing row of workload", "it", blocks=True)


def test_a_database_that_is_not_there_yet(machine: Machine) -> None:
    machine.database.unlink()
    findings, healthy, _ = found_on()
    assert healthy
    assert next(e.found for e in findings if e.check == "database").endswith("makes it")
    assert not machine.database.exists()


def test_a_database_at_work_is_read_beside_its_owner(machine: Machine) -> None:
    with closing(sqlite3.connect(machine.database)) as owner:
        owner.execute("PRAGMA journal_mode = WAL")
        owner.execute("UPDATE opdb_schema SET number = 99")
        owner.commit()
        the_fault("database", "schema 99; this opdb reads", "Move the file", blocks=True)


def test_a_database_too_large_to_check(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opdb.doctor.CHECKED_UP_TO_BYTES", 10)
    findings, healthy, _ = found_on()
    fault = next(each for each in findings if each.result != "fine")
    assert (fault.check, fault.result, healthy) == ("database", "unknown", True)
    assert "PRAGMA integrity_check" in str(fault.advice)


def test_a_database_that_only_can_be_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: access(path, mode) and Path(path) != machine.database
    )
    the_fault("database", "cannot be written", "--db", blocks=True)


def database_finding(url: str) -> Finding:
    return next(each for each in found_on(url)[0] if each.check == "database")


def test_a_database_in_memory_or_below_a_file_keeps_nothing(machine: Machine) -> None:
    for url in ("sqlite://", "sqlite:///:memory:", ":memory:"):
        fault = database_finding(url)
        assert fault.blocks and "in memory" in fault.found and "--db" in str(fault.advice)
    fault = database_finding(f"{machine.database}/new.sqlite")
    assert fault.blocks and "it is not a file" in fault.found


def test_a_name_that_is_no_database(machine: Machine) -> None:
    for url in ("mysql://somewhere/opdb", "oracle://here/x"):
        fault = database_finding(url)
        assert fault.blocks and "not supported" in fault.found
        assert "server" not in str(fault.advice)


def test_a_server_without_its_driver(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def answer(name: str) -> str:
        if name == "psycopg":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", answer)
    fault = database_finding("postgresql+psycopg://user:secret@host/opdb")
    assert fault.blocks and "secret" not in fault.found
    assert install("postgres") in str(fault.advice)


def test_a_server_that_does_not_answer(machine: Machine) -> None:
    pytest.importorskip("psycopg")
    fault = database_finding("postgresql+psycopg://user:secret@localhost:1/opdb")
    assert fault.blocks and "cannot be reached" in fault.found and "secret" not in fault.found
    assert fault.found.count("localhost") == 1


def test_a_server_that_answers(machine: Machine, postgres_server: postgres.Server) -> None:
    url = postgres_server.new_database()
    name = url.partition("?")[0].rpartition("/")[2]
    empty = database_finding(url)
    assert empty.result == "fine" and empty.found.endswith("empty, the first command fills it")
    open_store(url).close()
    whole = database_finding(url)
    assert whole.result == "fine" and whole.found.endswith(f"it answers, schema {SCHEMA}")
    postgres_server.sql("UPDATE opdb_schema SET number = 99", name)
    other = database_finding(url)
    assert other.blocks and "schema 99; this opdb reads" in other.found
    postgres_server.sql(f"UPDATE opdb_schema SET number = {SCHEMA}", name)
    postgres_server.sql("CREATE ROLE onlooker LOGIN")
    postgres_server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO onlooker", name)
    fault = database_finding(url.replace("opdb@", "onlooker@"))
    assert fault.blocks and "may not write it" in fault.found
    fault = database_finding(postgres_server.url("nowhere"))
    assert fault.blocks and "no database 'nowhere'" in fault.found
