"""What is told while operators are measured: what runs, its power and clock, what is left."""

from __future__ import annotations

import pytest

from opdb.cli.support.visiting import Visiting
from opdb.records import Configuration
from opdb.store import open_store
from tests import published
from tests.store.samples import failed_visit


def test_a_visits_power_and_clock_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(str(published.database())) as store:
        [board, *_] = store.boards()
        configurations = {each.key: each for each in store.configurations(["conv2d"])}
        found = store.visits(board.uuid, list(configurations))
    made = next(v for v in found if v.stretch and v.stretch.clock_samples_hz)
    assert made.stretch is not None
    power_w = [each for _, each in made.stretch.power_samples]
    with Visiting(quiet=False) as shown:
        shown.begin(1)
        shown.visited(configurations[made.configuration], made, 0.25)
    title, visit, power, clock = capsys.readouterr().err.strip().split(", ")
    assert (title, visit) == ("bench 1/1 conv2d", "250 ms a visit")
    assert min(power_w) <= float(power.removesuffix(" W")) <= max(power_w)
    assert 1e9 < float(clock.removesuffix(" GHz")) * 1e9 < 3e9


def test_what_no_meter_read_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    relu = Configuration("relu", {}, {"input": {"shape": [1], "dtype": "float32"}})
    with Visiting(quiet=False) as shown:
        shown.begin(1)
        shown.visited(relu, failed_visit(configuration=relu), 0.1)
    why, line = capsys.readouterr().err.strip().splitlines()
    assert why.startswith("relu: out_of_memory: asked for")
    assert line == "bench 1/1 relu, 100 ms a visit"
