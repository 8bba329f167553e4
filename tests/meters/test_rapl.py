"""RAPL's counters, as files in a folder of our own."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from opdb.meters import RaplMeter, unavailable_reason

RANGE_UJ = 1_000_000


def put(folder: Path, energy_uj: int) -> None:
    """Set a counter at once, as the kernel does: no reader sees half a number."""
    aside = folder / "aside"
    aside.write_text(f"{energy_uj}\n")
    aside.replace(folder / "energy_uj")


def package(root: Path, name: str, energy_uj: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    put(folder, energy_uj)
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return folder


def settle(meter: RaplMeter) -> None:
    """Wait until the meter has read again, whatever it was at."""
    for _ in range(2):
        seen = len(meter._edges)
        while len(meter._edges) == seen:
            time.sleep(0.002)


def joules_after(meter: RaplMeter, start_s: float) -> float:
    settle(meter)
    return meter.window(start_s, time.monotonic()).counter_edges[-1][1]


def test_energy_counts_up_and_through_the_end_of_the_counter(tmp_path: Path) -> None:
    folder = package(tmp_path, "intel-rapl:0", 900_000)
    with closing(RaplMeter(tmp_path)) as meter:
        settle(meter)
        start_s = time.monotonic()
        settle(meter)
        put(folder, 950_000)
        assert joules_after(meter, start_s) == pytest.approx(0.05)
        put(folder, 30_000)
        assert joules_after(meter, start_s) == pytest.approx(0.05 + 0.08), "it wrapped around"
        reading = meter.window(start_s, time.monotonic())
        assert all(w >= 0 for _, w in reading.power_samples)
        assert reading.reason is None
        area = sum(
            w * (b - a)
            for (_, w), (a, _), (b, _) in zip(
                reading.power_samples,
                reading.counter_edges,
                reading.counter_edges[1:],
                strict=False,
            )
        )
        assert area == pytest.approx(0.13)


def test_a_window_begins_and_ends_with_a_reading(tmp_path: Path) -> None:
    folder = package(tmp_path, "intel-rapl:0", 0)
    with closing(RaplMeter(tmp_path)) as meter:
        for energy_uj in (40_000, 100_000):
            put(folder, energy_uj)
            settle(meter)
    moments = [t for t, _ in meter._edges]
    whole = meter.window(moments[0], moments[-1])
    assert [t for t, _ in whole.counter_edges] == pytest.approx([t - moments[0] for t in moments])
    assert (whole.counter_edges[0][1], whole.counter_edges[-1][1]) == pytest.approx((0.0, 0.1))
    middles = [(a + b) / 2 - moments[0] for a, b in pairwise(moments)]
    assert [t for t, _ in whole.power_samples] == pytest.approx(middles)
    last = meter.window(moments[-2], moments[-1])
    assert len(last.power_samples) == 1
    assert last.counter_edges[0] == (0.0, 0.0), "joules count from the first reading"


def test_packages_are_added_and_their_parts_are_not(tmp_path: Path) -> None:
    folders = [
        package(tmp_path, name, 0)
        for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl-mmio:0")
    ]
    with closing(RaplMeter(tmp_path)) as meter:
        settle(meter)
        start_s = time.monotonic()
        settle(meter)
        for folder, energy_uj in zip(folders, (100_000, 20_000, 3_000, 400), strict=True):
            put(folder, energy_uj)
        assert joules_after(meter, start_s) == pytest.approx(0.12)


def test_why_it_cannot_be_read(tmp_path: Path) -> None:
    assert unavailable_reason(tmp_path) == f"no RAPL package under {tmp_path}"
    assert unavailable_reason(tmp_path / "none") == f"no RAPL package under {tmp_path / 'none'}"
    package(tmp_path, "intel-rapl:0", 5)
    assert unavailable_reason(tmp_path) is None
    unreadable = tmp_path / "intel-rapl:1" / "energy_uj"
    unreadable.mkdir(parents=True)  # even root cannot read a folder
    said = unavailable_reason(tmp_path)
    assert str(unreadable) in said and said.endswith("it needs root")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_counter_that_goes_away_leaves_a_reason(tmp_path: Path) -> None:
    folder = package(tmp_path, "intel-rapl:0", 0)
    with closing(RaplMeter(tmp_path)) as meter:
        settle(meter)
        (folder / "energy_uj").unlink()
        time.sleep(0.1)
        start_s = time.monotonic()
        time.sleep(0.1)
        reading = meter.window(start_s, time.monotonic())
    assert reading.power_samples == ()
    assert reading.reason is not None and "energy_uj" in reading.reason
