"""Moments of a host: how the same calls' times at one compare with those at the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from opdb.derive.host import FEWEST_CALLS, is_settled, moment_ratios
from opdb.records import Call, HostVisit
from opdb.store import open_store
from tests import published
from tests.store import samples

UNEVEN, EVEN = "GPU-7c54e2c6", "GPU-ea87fd5f"
"""Boards of the published set: one whose host was slow and fast in turns, one visited once."""


def moment(at: str, time_s: float, calls: int, first: int = 0) -> Iterator[HostVisit]:
    for number in range(first, first + calls):
        made_s = time_s * (1 + number)
        times_s = (made_s, 9 * made_s, made_s)
        yield HostVisit(f"{at}-{number}", "a-campaign", str(number), "module", at, times_s)


def test_each_moment_is_held_against_the_one_before() -> None:
    seen = [*moment("t3", 2e-5, 20), *moment("t1", 1e-5, 20), *moment("t2", 1.5e-5, 20)]
    assert moment_ratios(seen) == pytest.approx([1.5, 2 / 1.5])


def test_the_moment_before_is_the_last_at_which_the_same_calls_were_timed() -> None:
    others = moment("t2", 9e-5, 20, first=20)
    assert moment_ratios([*moment("t1", 1e-5, 20), *others, *moment("t3", 2e-5, 20)]) == (2.0,)


def test_few_calls_tell_of_themselves() -> None:
    some = FEWEST_CALLS - 1
    assert moment_ratios([*moment("t1", 1e-5, some), *moment("t2", 2e-5, some)]) == ()
    assert moment_ratios(moment("t1", 1e-5, 20)) == ()


def test_a_time_of_zero_has_no_ratio() -> None:
    assert moment_ratios([*moment("t1", 0.0, 20), *moment("t2", 1e-5, 20)]) == ()


def test_an_uneven_host_is_seen_in_the_published_set() -> None:
    with open_store(str(published.database())) as store:
        [uneven] = [b.uuid for b in store.boards() if b.uuid.startswith(UNEVEN)]
        [even] = [b.uuid for b in store.boards() if b.uuid.startswith(EVEN)]
        ratios = moment_ratios(store.host_visits(uneven))
        assert min(ratios) < 0.75 and max(ratios) > 1.4
        assert moment_ratios(store.host_visits(even)) == ()


def calls(count: int) -> list[Call]:
    """Calls whose visits `moment` would make, had their configurations these keys."""
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
