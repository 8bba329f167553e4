"""Whether a host is settled: what its calls took at one moment against another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.derive.host import host_factor, is_settled
from opdb.records import Call, HostVisit
from tests.store import samples


def calls(count: int) -> list[Call]:
    """Calls of so many configurations."""
    configurations = [replace(samples.RELU, parameters={"number": n}) for n in range(count)]
    return [Call(configuration, "module") for configuration in configurations]


def moments(of: list[Call], *slowness: float) -> list[HostVisit]:
    return [
        HostVisit(
            f"{n}", "a-campaign", call.configuration.key, call.form, f"t{n}", (1e-5 * factor,)
        )
        for n, factor in enumerate(slowness)
        for call in of
    ]


@pytest.mark.parametrize(
    ("slowness", "settled"),
    [((1.0, 1.1), True), ((1.0, 1.3), False), ((1.3, 1.0, 1.05), True), ((1.3, 1.0, 1.31), False)],
)
def test_a_host_is_settled_where_its_two_fastest_moments_agree(
    slowness: tuple[float, ...], settled: bool
) -> None:
    made = calls(9)
    assert is_settled(moments(made, *slowness), made) is settled


def test_calls_that_were_timed_once_cannot_disagree() -> None:
    made, others = calls(9), calls(18)[9:]
    assert is_settled(moments(made, 1.0), made)
    assert is_settled(moments(others, 1.0, 2.0), made), "what other calls took is nothing to these"
    assert is_settled(moments(made, 0.0, 2.0), made), "nothing can be said of a time of 0"


def test_most_calls_decide_each_by_the_median_of_its_times() -> None:
    made = calls(3)
    steady, uneven = moments(made[:2], 1.0, 1.1), moments(made[2:], 1.0, 9.0)
    assert is_settled([*steady, *uneven], made)
    assert not is_settled([*steady[::2], *moments(made[:2], 1.0, 1.4)[:2], *uneven], made[2:])
    skewed = [replace(visit, times_s=(*visit.times_s * 2, 9.0)) for visit in steady]
    assert is_settled(skewed, made[:2])
    other_form = [replace(visit, form="function") for visit in moments(made, 5.0)]
    assert is_settled([*moments(made, 1.0), *other_form], made)


A, B, C, D = (("key-" + name, "module") for name in "abcd")
PASSES = {A: 10, B: 1}, {C: 1, D: 4}
HERE_S = {A: 3e-6, B: 9e-6, C: 8e-6, D: 8e-6}


def test_a_factor_weighs_calls_by_how_often_a_pass_makes_them() -> None:
    there_s = {A: 2e-6, B: 1e-6}
    found = host_factor(HERE_S, there_s, PASSES)  # type: ignore[arg-type]
    assert found is not None and (found.calls, found.passes) == (2, 1)
    assert found.factor == pytest.approx((30 + 9) / (20 + 1))


@pytest.mark.parametrize(
    ("there_s", "factor", "passes"),
    [
        ({C: 4e-6, D: 4e-6}, 2.0, 1),
        ({D: 4e-6}, 2.0, 1),  # four fifths of its pass
        ({A: 1e-6, C: 4e-6, D: 4e-6}, 2.0, 1),  # a has 30 of 39 µs: too little of its pass
        ({A: 1e-6, B: 9e-6, C: 4e-6, D: 4e-6}, (39 + 40) / (19 + 20), 2),
    ],
)
def test_a_factor_rests_on_passes_that_are_known_nearly_whole(
    there_s: dict[tuple[str, str], float], factor: float, passes: int
) -> None:
    found = host_factor(HERE_S, there_s, PASSES)  # type: ignore[arg-type]
    assert found is not None and found.passes == passes
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize("there_s", [{}, {A: 0.0, B: 0.0}, {C: 4e-6}])
def test_without_such_a_pass_no_factor_is_known(there_s: dict[tuple[str, str], float]) -> None:
    assert host_factor(HERE_S, there_s, PASSES) is None  # type: ignore[arg-type]
    assert host_factor({}, HERE_S, PASSES) is None  # type: ignore[arg-type]
