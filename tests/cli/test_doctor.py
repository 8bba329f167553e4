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
import torch

from opdb.bench import calibrate as board
from opdb.bench import session as platform
from opdb.bench.session import Platform, Session, open_session
from opdb.commands.doctor import time_host
from opdb.derive.costs import host_quantities
from opdb.derive.runs import QUIET_BLOCKS
from opdb.kinds.registry import DEFAULT_SETTINGS, relevant_setting
from opdb.meters import NoMeter
from opdb.predict.predictor import LEAST_CALLS, predictor_for, workloads_to_time
from opdb.records import (
    BoardCalibration,
    Call,
    Cost,
    HostCalibration,
    HostVisit,
    MeterTest,
    Workload,
    this_host,
)
from opdb.store import Store, open_store
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


SLOWER = (1.0,) * 6 + (1.5,) * 54
"""Blocks of a host that mostly takes 1.5 times as long as in quiet moments."""

Calibrate = Callable[..., str]


@pytest.fixture
def calibrate(tmp_path: Path, opdb: Opdb) -> Calibrate:
    """Let a host be calibrated that takes `factor` times as long as that of resnet18's board."""
    path = published.copy_to(tmp_path / "opdb.sqlite")

    def save(factor: float, host: str = this_host().id) -> str:
        with open_store(str(path)) as store:
            [workload] = store.workloads("resnet50", batch_size=1, dtype="float32")
            predictor = predictor_for(store)
            [other] = store.workloads("resnet18", batch_size=1, dtype="float32")
            board = predictor.answer(other, "eager").prediction.board
            costs = predictor.costs_on(board, list(workload.occurrences()))
            store.save_host_calibration(slower(workload, costs, factor, host))
            return board

    return save


def slower(workload: Workload, costs: dict[str, Cost], factor: float, host: str) -> HostCalibration:
    """A calibration in which each call takes so many times as long as it cost, in quiet moments."""
    calls = {(call.configuration.key, call.form) for call in workload.calls}
    times_s = {(key, form): costs[key].host_time_s[form].mean * factor for key, form in calls}
    return replace(
        samples.host_calibration(),
        host=host,
        board=replace(samples.host_calibration().board, uuid=next(iter(costs.values())).board),
        workloads=(workload.key,),
        calls=tuple(
            HostVisit("", "", key, form, "t", tuple(time_s * each for each in SLOWER))
            for (key, form), time_s in times_s.items()
        ),
    )


ASKED = "predict", "resnet18", "-b", 1, "--mode"


def test_a_pass_that_waits_is_told_as_this_host_issues_it(opdb: Opdb, calibrate: Calibrate) -> None:
    before = opdb.read(*ASKED, "eager")
    assert before["on_host"] is None and "on this host" not in opdb(*ASKED, "eager").out
    calibrate(2.0)
    after = opdb.read(*ASKED, "eager")
    found = after.pop("on_host")
    assert after == {name: value for name, value in before.items() if name != "on_host"}
    assert found["factor"] == pytest.approx(2.0, rel=1e-3)
    assert found["calibrated_at"] == "2026-11-20T14:00:00Z"
    assert found["time_s"] == pytest.approx(2 * before["time_s"], rel=1e-3)
    said = opdb(*ASKED, "eager").out
    assert "on this host, which takes 2.00 times as long as that board's: " in said


@pytest.mark.parametrize(
    ("asked", "host"),
    [
        ((*ASKED, "graph"), None),
        (("predict", "resnet18", "-b", 128, "--mode", "eager"), None),  # waits for the device
        ((*ASKED, "eager"), "another"),
    ],
    ids=["graph", "device-bound", "another host"],
)
def test_nothing_is_said_of_passes_that_do_not_wait_and_of_other_hosts(
    opdb: Opdb, calibrate: Calibrate, asked: tuple[object, ...], host: str | None
) -> None:
    calibrate(2.0, *([host] if host else []))
    assert opdb.read(*asked)["on_host"] is None


def test_a_board_without_the_timed_calls_has_no_factor(opdb: Opdb, calibrate: Calibrate) -> None:
    board = calibrate(2.0)
    with open_store(str(published.database())) as store:
        others = [each for each in predictor_for(store).boards if each != board]
        [workload] = store.workloads("resnet50", batch_size=1, dtype="float32")
        called = {c.key for c in workload.occurrences()}
        bare = next(b for b in others if not called & store.costs(b).keys())
    found = opdb.read(*ASKED, "eager", "--board", bare)
    assert found["board"] == bare and found["on_host"] is None


# timed


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A campaign on a GPU whose calls this processor runs."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    there = Platform("cpu", samples.DEVICE, samples.campaign().board, this_host(), {"torch": "2"})
    return open_session(there, NoMeter("a test"))


def small(store: Store) -> Workload:
    """Store a workload of small calls whose host times one board has, of 10 µs each."""
    calls = [Call(samples.RELU, "function"), Call(samples.ADD, "function")] * (LEAST_CALLS // 2)
    workload = replace(samples.workload(batch_size=1), calls=tuple(calls), unsupported={})
    store.save_workload(workload)
    store.save_campaign(samples.campaign())
    took = replace(samples.cost().host_time_s["module"], mean=1e-5)
    costs = [
        replace(
            samples.cost(each),
            setting=relevant_setting(each.kind, DEFAULT_SETTINGS),
            host_time_s={"function": took},
        )
        for each in (samples.RELU, samples.ADD)
    ]
    store.replace_costs("GPU-1", costs)
    return workload


def test_the_calls_of_a_stored_model_are_timed(tmp_path: Path, session: Session) -> None:
    told: list[str] = []
    with open_store(str(tmp_path / "small.sqlite")) as store:
        workload = small(store)
        assert workloads_to_time(store) == [workload]
        costs = store.costs("GPU-1")
        assert time_host(store, session, told.append) == ["tiny"]
        saved = store.host_calibration(this_host().id)
        assert store.costs("GPU-1") == costs and not store.host_visits()
    assert told == ["timing how long this host takes to issue tiny, some seconds"]
    assert saved is not None and saved.workloads == (workload.key,)
    assert {(each.configuration, each.form) for each in saved.calls} == {
        (each.key, "function") for each in (samples.RELU, samples.ADD)
    }
    took_s = [each["function"].mean for each in host_quantities(saved.calls).values()]
    assert len(took_s) == 2 and min(took_s) > 0


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
