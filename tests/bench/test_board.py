"""Which calibration of a board counts, and that a distrusted meter reaches no measurement."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import torch

from opdb.bench import calibrate as board
from opdb.bench.calibrate import ensure_board_calibration, trusting
from opdb.bench.session import Platform, Session, open_session
from opdb.derive.costs import stretch_power_w
from opdb.meters import Meter
from opdb.records import BoardCalibration, MeterTest, Stretch, Trace
from opdb.store import Store
from tests.meters.replay import ReplayMeter
from tests.store import samples

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
BOARD = samples.campaign().board
FAILED = MeterTest("samples: step", False, 0.3, 0.08, "the samples are slow")
PASSED = MeterTest("counter: steady load", True, 0.003, 0.02, "the counter is right")


def calibration(identity: str, **changes: object) -> BoardCalibration:
    made = replace(samples.board_calibration(identity), driver="580.1", tests=(PASSED,))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def gpu() -> Session:
    """A session on a GPU that is not there, its meter a recorded trace."""
    environment: dict[str, str | None] = {"driver": "580.1", "torch": "2.15.0"}
    platform = Platform("cuda:0", samples.DEVICE, BOARD, samples.HOST, environment)
    return open_session(platform, ReplayMeter(TRACE))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the calibrations that were made, in place of making any."""
    ids: list[str] = []

    def make(session: Session) -> BoardCalibration:
        ids.append(f"made-{len(ids)}")
        moment = f"2026-11-21T0{len(ids)}:00:00Z"
        return calibration(ids[-1], measured_at=moment)

    monkeypatch.setattr(board, "calibrate_board", make)
    return ids


def test_a_missing_calibration_is_made_and_saved_once(
    gpu: Session, store: Store, made: list[str]
) -> None:
    said: list[str] = []
    found = ensure_board_calibration(gpu, store, tell=said.append)
    assert found == calibration("made-0", measured_at="2026-11-21T01:00:00Z")
    assert len(said) == 1 and BOARD.uuid in said[0]
    assert store.board_calibrations(BOARD.uuid) == [found]
    assert store.boards() == [BOARD] and store.devices() == [samples.DEVICE]
    assert store.campaigns() == []
    assert ensure_board_calibration(gpu, store, tell=said.append) == found
    assert made == ["made-0"] and len(said) == 1
    again = ensure_board_calibration(gpu, store, again=True)
    assert again.id == "made-1"
    assert ensure_board_calibration(gpu, store) == again, "the latest counts"


def test_what_failed_reaches_no_measurement(gpu: Session) -> None:
    sound = trusting(gpu, calibration("sound")).meter
    assert sound.window(3.7, 4.9) == gpu.meter.window(3.7, 4.9)
    wary = trusting(gpu, calibration("slow", tests=(FAILED, PASSED)))
    reading = wary.meter.window(1.3, 2.5)
    assert reading.power_samples == () and reading.reason is None
    stretch = Stretch(1, (1.2,), 1.2, 1.0, reading.power_samples, reading.counter_edges)
    power_w = stretch_power_w(stretch)
    whole = [w for _, w in gpu.meter.window(1.3, 2.5).power_samples]
    assert power_w == pytest.approx(sum(whole) / len(whole), rel=0.03)
    nothing = trusting(gpu, calibration("none", tests=(FAILED, replace(PASSED, passed=False))))
    reading = nothing.meter.window(1.3, 2.5)
    assert reading.reason is not None and "the samples are slow" in reading.reason
    assert reading.counter_edges == ()


class Watched:
    """A meter whose traces are empty."""

    def trace(self, start_s: float, end_s: float) -> Trace:
        return Trace(end_s - start_s)


class Virtual:
    """Time as a device would spend it: what runs takes so long, a look at a clock less.

    A real host may be held up between a rest and the load behind it.
    """

    WORK_S, READ_S = 1e-4, 1e-6

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.sleep(self.READ_S)
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def work(self) -> None:
        self.sleep(self.WORK_S)

    def mark(self) -> float:
        return self.now_s

    def wait(self, mark: float) -> None:
        """Do nothing: what was issued is done."""

    def elapsed_s(self, first: float, second: float) -> float:
        return second - first


@pytest.fixture
def recording(gpu: Session, monkeypatch: pytest.MonkeyPatch) -> board._Recording:
    """A recording whose loads take virtual time, each a moment."""
    virtual = Virtual()
    for name in ("SETTLE_LOAD_S", "STEADY_S", "OFF_S", "IDLE_SETTLE_S"):
        monkeypatch.setattr(board, name, 0.002)
    monkeypatch.setattr(board, "BOARD_WARM_UP_S", 0.002)
    for name in ("IDLE_S", "LIMIT_S", "RECOVER_S", "AHEAD_S", "STEP_PERIOD_S"):
        monkeypatch.setattr(board, name, 0.005)
    monkeypatch.setattr(board, "SQUARE_S", 0.03)
    monkeypatch.setattr(board, "square_matmul", lambda *given: virtual.work)
    monkeypatch.setattr(board, "time", virtual)
    monkeypatch.setattr(board, "CudaClock", lambda: virtual)
    monkeypatch.setattr(board, "copy_rate", lambda device: 4e12)
    monkeypatch.setattr(board, "matmul_rates", lambda device: {"matmul_tf32_flops_per_s": None})
    monkeypatch.setattr(board, "read_passes_s", lambda device, l2_bytes: ((4e6, 3e-6),))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: virtual.sleep(cycles / 1.98e9))
    session = replace(
        gpu, platform=replace(gpu.platform, torch_device="cpu"), meter=cast(Meter, Watched())
    )
    return board._Recording(session)


def test_waves_tell_when_the_load_was_on(recording: board._Recording) -> None:
    record = recording.record()
    assert [wave.period_s for wave in record.squares] == list(board.SQUARE_PERIODS_S)
    for wave in (record.step, *record.squares):
        assert all(0 < on < off <= wave.trace.duration_s for on, off in wave.on)
        assert all(a[1] < b[0] for a, b in pairwise(wave.on))
        half_s = wave.period_s / 2
        began_s = [0.0, *(off for _, off in wave.on)]
        rests_s = [on - off for off, (on, _) in zip(began_s, wave.on, strict=False)]
        assert rests_s == pytest.approx([half_s] * len(wave.on), abs=10 * Virtual.READ_S)
        loads_s = [off - on for on, off in wave.on]
        assert loads_s == pytest.approx([half_s] * len(wave.on), abs=Virtual.WORK_S)
    assert record.steady.duration_s > 0 < record.limit.duration_s
    assert record.passes == ((4e6, 3e-6),)
    assert record.rates == {"copy_bytes_per_s": 4e12, "matmul_tf32_flops_per_s": None}
