"""Which calibration of a board counts, and that a distrusted meter reaches no measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench import board, calibrate
from opdb.bench.board import ensure_board_calibration, trusting
from opdb.bench.platform import Platform
from opdb.bench.session import Session, open_session
from opdb.derive.costs import stretch_power_w
from opdb.meters.replay import ReplayMeter
from opdb.predict import Predictor
from opdb.records import BoardCalibration, MeterTest, Stretch
from opdb.store import Store
from tests.store import samples

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
BOARD = samples.campaign().board
FAILED = MeterTest("samples: step", False, 0.3, 0.08, "the samples are slow")
PASSED = MeterTest("counter: polling", True, 0.003, 0.02, "the counter is left alone")


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

    def make(session: Session, tell: Callable[[str], None]) -> BoardCalibration:
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
    assert again is not None and again.id == "made-1"
    assert ensure_board_calibration(gpu, store) == again, "the latest counts"


@pytest.mark.parametrize(
    "changes", [{"driver": "570.0"}, {"driver": None}, {"power_limit_w": 500.0}], ids=str
)
def test_another_driver_or_power_limit_is_another_calibration(
    gpu: Session, store: Store, made: list[str], changes: dict[str, object]
) -> None:
    store.save_board(samples.DEVICE, BOARD)
    store.save_board_calibration(calibration("other", **changes))
    found = ensure_board_calibration(gpu, store)
    assert found is not None and found.id == "made-0"


def test_a_processor_has_none(session: Session, store: Store, made: list[str]) -> None:
    assert ensure_board_calibration(session, store) is None
    assert trusting(session, None) is session
    assert made == [] and store.boards() == []


def test_what_failed_reaches_no_measurement(gpu: Session) -> None:
    assert trusting(gpu, calibration("sound")) is gpu
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


def test_base_power_comes_from_the_counter_where_samples_are_not_trusted(
    gpu: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter((5.2, 6.0))
    monkeypatch.setattr("opdb.bench.calibrate.time.monotonic", lambda: next(moments))
    monkeypatch.setattr("opdb.bench.calibrate.time.sleep", lambda seconds: None)
    wary = trusting(gpu, calibration("slow", tests=(FAILED,)))
    base_w, interval, notes = calibrate._base_power(wary)
    assert base_w == pytest.approx(125, abs=3)
    assert (interval, notes) == (None, ())


def test_a_board_that_was_calibrated_alone_predicts_nothing(store: Store) -> None:
    store.save_board(samples.DEVICE, BOARD)
    store.save_campaign(samples.campaign(board="GPU-2"))
    assert Predictor(store, samples.DEVICE)._boards == ["GPU-2"]
