"""A board's calibration on a real NVIDIA GPU: its meters tested, its facts plausible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.bench.calibrate import stored_calibration
from opdb.bench.session import Session, detect, open_meter, open_session
from opdb.derive.calibration import power_meter
from opdb.records import BoardCalibration
from opdb.store import Store, open_store


@pytest.fixture(scope="module")
def store(calibrated: Path) -> Iterator[Store]:
    with open_store(str(calibrated)) as opened:
        yield opened


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    platform = detect("cuda")
    meter = open_meter(platform)
    yield open_session(platform, meter)
    meter.close()


@pytest.fixture(scope="module")
def calibration(session: Session, store: Store) -> BoardCalibration:
    made = stored_calibration(session, store)
    assert made is not None
    return made


def test_a_meter_gives_power_and_a_reason_stands_for_every_other(
    calibration: BoardCalibration,
) -> None:
    source, words = power_meter(calibration.tests)
    assert source in ("samples", "counter"), words
    assert len(calibration.tests) == 5
    assert all(test.words for test in calibration.tests)


def test_the_facts_are_plausible(calibration: BoardCalibration, session: Session) -> None:
    facts, device = calibration.facts, session.platform.device
    assert device.power_limit_w is not None and device.l2_bytes is not None

    def fact(name: str) -> float:
        value = facts[name]
        assert value is not None, calibration.notes
        return value

    assert 0.001 < fact("sample_period_s") < 0.2
    assert 0.005 < fact("counter_period_s") < 0.5
    assert 0 <= fact("sample_lag_s") < 0.2
    assert 0 < fact("step_response_10_90_s") < 0.2
    assert 0.05 < fact("base_power_w") / device.power_limit_w < 0.5
    assert fact("copy_bytes_per_s") > 1e11
    assert fact("matmul_float16_flops_per_s") > fact("matmul_float32_flops_per_s") > 1e12
    assert 0.2 < fact("l2_resident_bytes") / device.l2_bytes < 1.5
