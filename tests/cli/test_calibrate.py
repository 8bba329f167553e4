"""`opdb doctor --calibrate` without a GPU, and what it shows of a calibration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opdb.bench import calibrate as board
from opdb.bench import session as platform
from opdb.bench.session import Platform
from opdb.meters import NoMeter
from opdb.records import BoardCalibration, MeterTest
from tests.cli.conftest import Opdb, snapshot
from tests.store import samples

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
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

        def make(session: object, tell: Callable[[str], None]) -> BoardCalibration:
            tell("a load")
            return found

        monkeypatch.setattr(platform, "detect", lambda device: there)
        monkeypatch.setattr(platform, "open_meter", lambda there: NoMeter("a test"))
        monkeypatch.setattr(board, "calibrate_board", make)

    return prepare


@no_gpu
@pytest.mark.parametrize(
    ("device", "said"),
    [
        ([], "run opdb doctor --calibrate on a machine with an NVIDIA GPU"),
        (["--device", "cpu"], "has no meters that opdb tests"),
        (["--device", "cuda"], "no CUDA device for --device cuda"),
        (["--device", "cuda:3", "--again", "--json"], "no CUDA device for --device cuda:3"),
    ],
    ids=str,
)
def test_without_a_gpu_it_is_one_message_and_no_database(
    opdb: Opdb, tmp_path: Path, device: list[str], said: str
) -> None:
    before = snapshot(tmp_path)
    ran = opdb("doctor", "--calibrate", *device)
    assert (ran.status, ran.out) == (3, "")
    assert said in ran.err and len(ran.err.splitlines()) == 1
    assert snapshot(tmp_path) == before


def test_facts_and_tests_are_shown_in_words(
    opdb: Opdb, tested: Callable[[tuple[MeterTest, ...]], None]
) -> None:
    tested((STEADY, ABSENT))
    ran = opdb("doctor", "--calibrate")
    assert ran.status == 0
    progress = ran.err.splitlines()
    assert progress[0].startswith("testing the meters of NVIDIA H200 (GPU-1)")
    assert progress[1:] == ["a load"]
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


def test_a_board_without_any_meter_is_exit_3(
    opdb: Opdb, tested: Callable[[tuple[MeterTest, ...]], None]
) -> None:
    tested((ABSENT,))
    ran = opdb("doctor", "--calibrate", "--quiet")
    assert ran.status == 3
    assert ran.err == "opdb: GPU-1: no meter gives power; times can be measured all the same\n"
