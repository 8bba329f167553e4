"""The benchmarks that look for losses, in small: kills and a soak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import Sample, judged

ROOT = Path(__file__).parents[2]


def ran(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{script}", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_harvest_that_is_killed_leaves_nothing_half_done() -> None:
    """The other commands are killed where they are tested, or by hand: they take longer."""
    told = ran("kills", "harvest", "--kills", "2", "--seed", "5")
    [row] = [line.split(",") for line in told.splitlines()[2:]]
    assert (row[0], row[1], row[4]) == ("harvest", "2", "0")


@pytest.mark.parametrize(("late_bytes", "growth"), [(100, 1.0), (120, 1.2)])
def test_what_a_soak_holds_late_is_held_against_what_it_held_early(
    late_bytes: int, growth: float
) -> None:
    early = [Sample(float(at_s), 0, 100, 6, 1) for at_s in range(0, 1800, 10)]
    late = [Sample(float(at_s), 1, late_bytes, 7, 1) for at_s in range(1800, 3610, 10)]
    found = judged(early + late)
    assert found["growth"] == pytest.approx(growth)
    assert (found["more_files"], found["more_threads"]) == (1, 0)
