from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.cli.conftest import Opdb
from tests.doctor.conftest import Machine, machine
from tests.meters.test_nvml import UUID, no_driver

__all__ = ["machine"]  # the fixture


def test_a_healthy_machine(opdb: Opdb, machine: Machine) -> None:
    ran = opdb("doctor")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split() == ["check", "result", "found"]
    assert lines[1].split(maxsplit=2) == ["GPU", "fine", "NVIDIA H200"]
    assert lines[-1] == "a GPU can be measured here"
    assert "what to do" not in ran.out


def test_a_fault_is_shown_with_what_to_do(opdb: Opdb, machine: Machine) -> None:
    machine.mig = 1
    (machine.programs / "ncu").unlink()
    ran = opdb("doctor")
    assert ran.status == 1
    table, advice = ran.out.split("\n\n")
    rows = dict(line.split("  ", 1) for line in table.splitlines())
    assert rows["MIG"].split("  ")[-1] == "on: the power of an instance cannot be read"
    assert "NOT FINE" in rows["MIG"]
    assert rows["Nsight Compute"].split() == ["note", "no", "ncu", "on", "PATH"]
    said = [line.split("  ")[0] for line in advice.splitlines()]
    assert said == ["check", "MIG", "Nsight Compute"]
    assert ran.err == (
        "opdb: no GPU can be measured here before this is put right: MIG; "
        "harvest and predict work\n"
    )


def test_notes_do_not_fail(opdb: Opdb, machine: Machine) -> None:
    (machine.programs / "ncu").unlink()
    machine.ticks = False
    ran = opdb("doctor")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count("  note  ") == 2


def test_several_gpus_are_told_apart(opdb: Opdb, machine: Machine) -> None:
    machine.boards = machine.gpus = 2
    out = opdb("doctor").out
    assert "\nGPU 0: MIG " in out
    assert "\nGPU 1: MIG " in out


def test_as_json(opdb: Opdb, machine: Machine) -> None:
    machine.processes = {7: "trainer"}
    ran = opdb("doctor", "--json")
    assert ran.status == 1
    document = json.loads(ran.out)
    assert set(document) == {"healthy", "words", "boards", "findings"}
    assert (document["healthy"], document["boards"]) == (False, [UUID])
    fault = next(each for each in document["findings"] if each["result"] != "fine")
    assert fault.pop("advice").startswith("Stop them or wait")
    assert fault == {
        "check": "processes",
        "board": 0,
        "result": "not",
        "blocks": True,
        "found": "7 (trainer)",
    }


def test_without_a_gpu_predict_works_and_bench_of_a_gpu_does_not(
    opdb: Opdb, machine: Machine
) -> None:
    machine.start_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    machine.gpus = 0
    ran = opdb("doctor")
    assert ran.status == 1
    assert ran.err == (
        "opdb: no GPU can be measured here, for there is none; harvest and predict work, "
        "and bench --device cpu\n"
    )


def test_the_database_that_is_named_is_looked_at(
    opdb: Opdb, machine: Machine, tmp_path: Path
) -> None:
    other = tmp_path / "other.sqlite"
    other.write_text("no database")
    ran = opdb("doctor", "--db", other)
    assert ran.status == 1
    assert f"{other}: file is not a database" in ran.out
    assert other.read_text() == "no database"


@no_driver
@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_it_runs_on_this_very_machine_with_nothing_on_the_path(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """In a process of its own: no driver, no compiler, a database that is not there."""
    ran = subprocess.run(
        [sys.executable, "-m", "opdb", "doctor", "--db", str(tmp_path / "none.sqlite"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(tmp_path)},
        timeout=60,  # 2.5 s on an idle machine
    )
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert ran.stderr.startswith("opdb: no GPU can be measured here")
    assert not list(tmp_path.iterdir())
