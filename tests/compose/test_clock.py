"""The clock at the power limit, and how operators go with it."""

from __future__ import annotations

import pytest

from opdb.compose.clock import (
    LOWEST_SHARE,
    USUAL_ENERGY_EXPONENT,
    USUAL_TIME_EXPONENT,
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


def test_without_a_second_clock_the_others_serve() -> None:
    seen = cost(OperatingPoint(1e9, 1.5e-3, 0.4))
    barely = cost(OperatingPoint(1.99e9, 1.2e-3, 0.9))
    found = scalings({"seen": seen, "barely": barely, "free": cost(None)})
    assert found["barely"] == found["seen"]
    assert found["free"] == Scaling(0.0, found["seen"].energy_exponent)
    usual = scalings({"barely": barely})["barely"]
    assert usual == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT)


@pytest.mark.parametrize(
    "limited",
    [OperatingPoint(1e9, 1.5e-3, -0.1), OperatingPoint(1e9, -1e-9, 0.4), OperatingPoint(0, 1.0, 1)],
)
def test_a_point_that_its_noise_left_nothing_of_tells_no_exponents(limited: OperatingPoint) -> None:
    found = scalings({"k": cost(limited)})["k"]
    assert found == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT)


def test_the_share_is_the_largest_that_keeps_to_the_limit() -> None:
    assert clock_share(lambda share: 800 * share, 1000) == 1
    assert clock_share(lambda share: 800 * share, 600) == pytest.approx(0.75)
    assert clock_share(lambda _: 800.0, 600) == pytest.approx(LOWEST_SHARE)
