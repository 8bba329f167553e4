from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench import calibrate as board
from opdb.bench import session as platform
from opdb.bench.session import Platform
from opdb.derive.runs import QUIET_BLOCKS
from opdb.meters import NoMeter
from opdb.records import (
    BoardCalibration,
    MeterTest,
)
from tests import published
from tests.cli.conftest import Opdb
from tests.doctor.conftest import Machine, machine
from tests.meters.test_nvml import no_driver
from tests.store import samples

__all__ = ["machine"]  # the fixture


def test_faults_and_notes_are_shown_with_what_to_do(opdb: Opdb, machine: Machine) -> None:
    (machine.programs / "ncu").unlink()
    ran = opdb("doctor")
    assert (ran.status, ran.err) == (0, ""), "notes do not fail"
    assert ran.out.splitlines()[-1] == "a GPU can be measured here"
    machine.mig, machine.boards, machine.gpus = 1, 2, 2
    ran = opdb("doctor")
    assert ran.status == 1
    table, advice = ran.out.split("\n\n")
    rows = dict(line.split("  ", 1) for line in table.splitlines())
    assert rows["GPU 0: MIG"].split("  ")[-1] == "on: the power of an instance cannot be read"
    assert "NOT FINE" in rows["GPU 1: MIG"] and rows["Nsight Compute"].split()[0] == "note"
    said = [line.rpartition(": ")[0] for line in advice.splitlines()]
    assert said == ["GPU 0: MIG", "GPU 1: MIG", "Nsight Compute"]
    assert ran.err == (
        "opdb: no GPU can be measured here before this is put right: GPU 0: MIG, GPU 1: MIG\n"
    )


def test_as_json(opdb: Opdb, machine: Machine) -> None:
    machine.processes = {7: "trainer"}
    ran = opdb("doctor", "--json")
    assert ran.status == 1
    document = json.loads(ran.out)
    assert set(document) == {"healthy", "words", "findings"} and not document["healthy"]
    fault = next(each for each in document["findings"] if each["result"] != "fine")
    assert fault.pop("advice").startswith("Stop them or wait")
    assert fault == {"check": "processes", "result": "NOT FINE", "found": "7 (trainer)"}


@no_driver
def test_it_runs_on_this_very_machine_with_nothing_on_the_path(tmp_path: Path) -> None:
    """In a process of its own: no driver, no compiler, a database that is not there."""
    ran = subprocess.run(
        [sys.executable, "-m", "opdb", "doctor", "--db", str(tmp_path / "none.sqlite")],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(tmp_path)},
        timeout=60,  # 2.5 s on an idle machine
    )
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert ran.stderr.startswith("opdb: no GPU can be measured here")
    assert not list(tmp_path.iterdir())


STEADY = MeterTest("samples: steady load", True, 0.001, 0.02, "they agree")
POLLED = MeterTest("counter: polling", False, 0.5, 0.02, "it counts half when it is read fast")
ABSENT = MeterTest("instant: steady load", None, None, None, "not made: none is reported")
FACTS = {
    "sample_period_s": 0.0204,
    "copy_bytes_per_s": 4.3e12,
    "matmul_tf32_flops_per_s": 4e14,
    "l2_resident_bytes": 3e7,
    "base_power_w": 121.5,
    "limit_power_w": None,
}


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[MeterTest, ...]], None]:
    """Let there be a GPU whose calibration finds what is given."""

    def prepare(tests: tuple[MeterTest, ...]) -> None:
        campaign = samples.campaign()
        there = Platform(
            "cuda:0", samples.DEVICE, campaign.board, samples.HOST, {"driver": "580.1"}
        )
        found = replace(samples.board_calibration(), tests=tests, facts=FACTS, notes=("a note",))

        def make(session: object) -> BoardCalibration:
            return found

        monkeypatch.setattr(platform, "detect", lambda device: there)
        monkeypatch.setattr(platform, "open_meter", lambda there: NoMeter("a test"))
        monkeypatch.setattr(board, "calibrate_board", make)

    return prepare


def test_facts_and_tests_are_shown_in_words(
    opdb: Opdb, tested: Callable[[tuple[MeterTest, ...]], None]
) -> None:
    tested((STEADY, ABSENT))
    ran = opdb("doctor", "--calibrate")
    assert ran.status == 0
    progress = ran.err.splitlines()
    assert progress[0].startswith("testing the meters of NVIDIA H200 (GPU-1)")
    assert len(progress) == 1
    for line in (
        "nvidia-h200 (GPU-1), driver 580.1, 700 W limit; tested 2026-11-20T09:58:00Z",
        "sample period        20.4 ms",
        "copy                 4.3 TB/s",
        "matmul tf32          400 TFLOP/s",
        "l2 resident          30 MB",
        "base power           121.5 W",
        "limit power          –",
        "samples: steady load  passed    they agree",
        "instant: steady load  not made  not made: none is reported",
        "power comes from the driver's ring of samples",
        "note: a note",
    ):
        assert " ".join(line.split()) in [" ".join(x.split()) for x in ran.out.splitlines()], line
    ran = opdb("doctor", "--calibrate", "--quiet")
    assert (ran.status, ran.err) == (0, ""), "the stored one is shown"


def test_a_failed_test_is_exit_1_and_names_the_meter_that_is_not_used(
    opdb: Opdb, tested: Callable[[tuple[MeterTest, ...]], None]
) -> None:
    tested((STEADY, POLLED, ABSENT))
    ran = opdb("doctor", "--calibrate", "--json", "--quiet")
    assert (ran.status, ran.err) == (1, "opdb: GPU-1: failed: counter: polling\n")
    found = json.loads(ran.out)
    assert found["power_meter"] == "samples"
    assert found["not_used"] == {"counter": POLLED.words}
    assert found["facts"] == FACTS
    assert [test["passed"] for test in found["tests"]] == [True, False, None]
    assert found["tests"][1]["bound"] == 0.02 and found["tests"][2]["value"] is None
    assert (found["board"], found["driver"], found["power_limit_w"]) == ("GPU-1", "580.1", 700.0)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """The published runs, as if those in eager were measured as waiting for the host."""
    h200 = published.copy_to(tmp_path / "opdb.sqlite")
    connection = sqlite3.connect(h200)
    facts = json.dumps({QUIET_BLOCKS: 100})
    connection.execute("UPDATE model_run SET facts = ? WHERE mode = 'eager'", (facts,))
    connection.commit()
    connection.close()
    return h200


def test_predict_says_how_slow_the_host_was_when_a_pass_was_measured(
    opdb: Opdb, waiting: Path
) -> None:
    found = opdb.json("predict", "resnet18", "-b", 1, "--mode", "eager")
    assert 0.9 < found["measured"]["host_slowdown"] < 3
