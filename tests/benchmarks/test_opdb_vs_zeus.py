"""The comparison with Zeus: its arithmetic, and what it says where there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.opdb_vs_zeus import (
    Comparison,
    counter_energy_j,
    difference,
    line,
    middle,
    samples_energy_j,
)
from opdb.meters import Reading

ROOT = Path(__file__).parents[2]


def test_energy_by_samples_is_mean_power_times_the_window() -> None:
    reading = Reading(power_samples=((0.0, 100.0), (0.02, 300.0)))
    assert samples_energy_j(reading, 60.0) == 12_000
    assert samples_energy_j(Reading(), 60.0) is None


def test_energy_by_the_counter_reaches_from_edge_to_edge_and_is_extended() -> None:
    assert counter_energy_j([(0.05, 0.0), (0.15, 20.0), (0.95, 180.0)], 1.0) == pytest.approx(200)
    assert counter_energy_j([(0.05, 0.0)], 1.0) is None


def test_a_visit_lies_in_the_middle_and_never_outside() -> None:
    assert middle(100.0, 160.0, 0.22) == pytest.approx((129.89, 130.11))
    assert middle(0.0, 0.1, 0.22) == pytest.approx((0.0, 0.1))


def test_a_difference_is_relative_to_zeus() -> None:
    assert difference(101.0, 100.0) == pytest.approx(0.01)
    assert difference(None, 100.0) is None
    assert difference(100.0, 0.0) is None, "a counter that did not move"


def test_a_line_shows_both_and_what_is_missing() -> None:
    row = Comparison(
        "matmul", 1.0, 60.0, 60.0, 1.98e9, 2940, 30000.0, 30030.0, None, None, 0.001, None
    )
    shown = line(row)
    assert "1980 MHz" in shown and "30000.0 J" in shown and "30030.0 J +0.10 %" in shown
    assert shown.endswith("–")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.opdb_vs_zeus", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
def test_without_a_gpu_there_is_one_clear_message() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"opdb_vs_zeus: torch {torch.__version__} sees no NVIDIA GPU here\n"


def test_a_window_that_the_meter_does_not_remember_is_refused() -> None:
    done = run("--seconds", "600")
    assert done.returncode == 2
    assert "--seconds 600: from 1 to 110" in done.stderr
