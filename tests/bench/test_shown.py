"""What is shown while operators are measured: what runs, its power and clock."""

from __future__ import annotations

from dataclasses import replace

from opdb.bench.run import readings
from opdb.store import open_store
from tests import published


def test_a_visits_power_and_clock_are_those_of_its_samples() -> None:
    with open_store(str(published.database())) as store:
        [board, *_] = store.boards()
        keys = [each.key for each in store.configurations(["conv2d"])]
        found = store.visits(board.uuid, keys)
    made = next(v for v in found if v.stretch and v.stretch.clock_samples_hz)
    assert made.stretch is not None
    power_w = [each for _, each in made.stretch.power_samples]
    power, clock = readings(made)
    assert min(power_w) <= float(power.removesuffix(" W")) <= max(power_w)
    assert 1e9 < float(clock.removesuffix(" GHz")) * 1e9 < 3e9
    unmetered = replace(made, stretch=replace(made.stretch, power_samples=(), clock_samples_hz=()))
    assert not list(readings(unmetered)) and not list(readings(replace(made, stretch=None)))
