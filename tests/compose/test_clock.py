"""The clock at the power limit, and how operators go with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.compose.clock import (
    BEYOND_CACHES,
    LOWEST_SHARE,
    USUAL_ENERGY_EXPONENT,
    USUAL_TIME_EXPONENT,
    Load,
    Scaling,
    clock_share,
    scalings,
)
from opdb.records import Cost, OperatingPoint, Quantity


def cost(limited: OperatingPoint | None, clock_hz: float | None = 2e9) -> Cost:
    """Return a cost of 1 ms and 1 J at 2 GHz."""
    time_s, energy_j = (Quantity(v, v, None, None, 2) for v in (1e-3, 1.0))
    return Cost(
        configuration="k",
        board="b",
        setting="{}",
        estimator="1",
        visits=2,
        kernels=1,
        time_s=time_s,
        eager_time_s=None,
        power_w=None,
        energy_j=None,
        dynamic_energy_j=energy_j,
        clock_hz=clock_hz,
        limited=limited,
    )


def test_exponents_are_those_between_the_two_clocks() -> None:
    found = scalings({"k": cost(OperatingPoint(1e9, 1.5e-3, 0.4))})["k"]
    assert found.time(0.5) == pytest.approx(1.5)
    assert found.energy(0.5) == pytest.approx(0.4)
    assert found.time(1.0) == found.energy(1.0) == 1


def test_exponents_stay_within_what_is_possible() -> None:
    found = scalings({"k": cost(OperatingPoint(1e9, 9e-3, 1.5))})["k"]
    assert (found.time_exponent, found.energy_exponent) == (1.0, 0.0)
    found = scalings({"k": cost(OperatingPoint(1e9, 0.9e-3, 0.1))})["k"]
    assert (found.time_exponent, found.energy_exponent) == (0.0, 3.0)


def test_without_a_second_clock_the_others_serve() -> None:
    seen = cost(OperatingPoint(1e9, 1.5e-3, 0.4))
    barely = cost(OperatingPoint(1.99e9, 1.2e-3, 0.9))
    found = scalings({"seen": seen, "barely": barely, "free": cost(None)})
    assert found["barely"] == found["seen"]
    assert found["free"] == Scaling(0.0, found["seen"].energy_exponent)
    usual = scalings({"barely": barely})["barely"]
    assert usual == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT) == Scaling(0.66, 1.07)
    half = cost(OperatingPoint(1e9, 2e-3, 0.5))
    mean = scalings({"seen": seen, "half": half, "barely": barely})["barely"]
    assert mean.time(0.5) == pytest.approx(3**0.5) and mean.energy(0.5) == pytest.approx(0.2**0.5)


def test_what_moves_its_bytes_slowly_is_not_bound_by_memory() -> None:
    """At the best rate 2 GiB take 1 ms; at less than half of it, the clock decides."""
    best, least = 2**31, BEYOND_CACHES
    assert least == 128 * 2**20
    moved = {"best": best, "as slow": best // 2, "slower": best // 2 - 1, "small": least - 1}
    found = scalings(dict.fromkeys((*moved, "unknown"), cost(None)), moved)
    usual, bound = Scaling(0.66, 1.07), Scaling(0.0, 1.07)
    assert found["best"] == found["as slow"] == found["unknown"] == bound
    assert found["slower"] == found["small"] == usual
    longer = replace(cost(None), time_s=Quantity(3e-3, 3e-3, None, None, 2))
    found = scalings({"best": cost(None), "longer": longer}, {"best": best, "longer": best})
    assert (found["best"], found["longer"]) == (bound, usual), "the same bytes at a third"
    untimed = replace(cost(None), time_s=None)
    alone = scalings(
        {"long": cost(None), "k": cost(None), "none": untimed}, {"long": least, "k": 1}
    )
    assert (alone["long"], alone["k"], alone["none"]) == (bound, usual, bound)
    cached = scalings({"k": cost(None), "small": cost(None)}, {"k": least - 1, "small": 1})
    assert set(cached.values()) == {bound}, "nothing shows the rate of the memory"


def test_a_load_is_summed_by_how_it_scales() -> None:
    slow, bound = Scaling(1.0, 2.0), Scaling(0.0, 1.0)
    load = Load.of([(slow, 1e-3, 0.0), (bound, 2e-3, 0.4), (slow, 3e-3, 0.8)])
    assert load.parts == {slow: pytest.approx((4e-3, 0.8)), bound: pytest.approx((2e-3, 0.4))}
    assert load.time_s(0.5) == pytest.approx(8e-3 + 2e-3)
    assert load.energy_j(0.5) == pytest.approx(0.2 + 0.2)


@pytest.mark.parametrize(
    "limited",
    [
        OperatingPoint(1e9, 1.5e-3, -0.1),
        OperatingPoint(1e9, -1e-9, 0.4),
        OperatingPoint(0, 1.0, 1),
        OperatingPoint(None, 1.5e-3, 0.4),
        OperatingPoint(1e9, 1.5e-3, None),
    ],
)
def test_a_point_that_its_noise_left_nothing_of_tells_no_exponents(limited: OperatingPoint) -> None:
    found = scalings({"k": cost(limited)})["k"]
    assert found == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT)


def test_exponents_need_a_clock_a_time_and_an_energy_at_full_clock() -> None:
    whole = cost(OperatingPoint(1e9, 1.5e-3, 0.4))
    for lacking in (
        replace(whole, clock_hz=None),
        replace(whole, time_s=None),
        replace(whole, dynamic_energy_j=None),
    ):
        assert scalings({"k": lacking})["k"] == Scaling(0.66, 1.07)


def test_the_share_is_the_largest_that_keeps_to_the_limit() -> None:
    assert clock_share(lambda share: 800 * share, 1000) == 1
    assert clock_share(lambda share: 800 * share, 800) == 1
    assert clock_share(lambda share: 800 * share, 600) == pytest.approx(0.75)
    assert clock_share(lambda _: 800.0, 600) == LOWEST_SHARE == 0.3
