from __future__ import annotations

from dataclasses import replace

from benchmarks.boards_at_once import moved, rate
from opdb.records import Configuration, Cost, Quantity
from tests.store import samples


def costs(scale: float) -> dict[str, list[Cost]]:
    found = {}
    for number in range(1, 40):
        quantity = Quantity(number * scale, number * scale, None, None, 2)
        configuration = Configuration("relu", {"n": number})
        cost = replace(samples.cost(configuration), time_s=quantity)
        found[configuration.key] = [cost]
    return found


def test_what_neighbours_at_work_do_to_a_boards_costs() -> None:
    found = moved(costs(1e-5), costs(1.02e-5), "time_s")
    assert found is not None and found.configurations == 39
    assert abs(found.median - 1.02) < 1e-9 and abs(found.low - 1.02) < 1e-9
    same = moved(costs(1), costs(2), "host_time_s")
    assert same is not None and same.median == 1
    assert moved(costs(1), costs(1), "energy_j") is None, "nobody measured it"
    assert moved(costs(1), {}, "time_s") is None


def test_the_slowest_board_says_how_long_all_took() -> None:
    results = [
        {"configurations": 30, "elapsed_s": 20.0},
        {"configurations": 50, "elapsed_s": 25.0},
    ]
    assert rate(results) == (80, 25.0)
