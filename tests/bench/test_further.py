"""Which sums further visits are made for, by costs of visits whose times the tests choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opdb.bench import plan as further
from opdb.bench import run
from opdb.bench.plan import BenchRequest, SumsReached
from opdb.bench.session import Platform, Session, new_id
from opdb.bench.visit import VisitRequest, visit
from opdb.records import Call, Configuration, Visit
from opdb.store import Store
from opdb.store.costs import derive_costs
from tests.bench.calls import CONV, RELU, SQUARE, TANH, workload

pytestmark = pytest.mark.usefixtures("short")
STEADY, UNSTEADY = (CONV, SQUARE, TANH), RELU
LARGE = workload(*STEADY, UNSTEADY, name="large")
SMALL = workload(UNSTEADY, name="small")


def took(store: Store, session: Session, configuration: Configuration, *times_s: float) -> None:
    """Save a visit of each time of a call; a call of 0 s gave the device nothing to do."""
    store.save_campaign(session.campaign)
    [made] = visit(session, VisitRequest(configuration))
    for time_s in times_s:
        store.save_visit(replace(lasting(made, time_s), id=new_id()))
    derive_costs(store, session.platform.board.uuid)


def lasting(made: Visit, time_s: float) -> Visit:
    if not time_s:
        return replace(made, stretch=None, kernels={})
    assert made.stretch is not None
    stretch = replace(made.stretch, calls_per_replay=1, replay_times_s=(time_s,) * 3)
    return replace(made, stretch=stretch, restore=None)


@pytest.fixture
def measured(store: Store, session: Session) -> Store:
    """Two workloads of one operator that scatters: nearly nothing of one, and all of the other."""
    for each in (LARGE, SMALL):
        store.save_workload(each)
    for configuration in STEADY:
        took(store, session, configuration, 1.0, 1.0)
    took(store, session, UNSTEADY, 1e-4, 2e-4)
    return store


def visited_again(store: Store, session: Session, **asked: Any) -> set[Configuration]:
    """Return what is visited once more."""
    request = replace(BenchRequest(rounds=None), **asked)
    benched = further.benched_in(store, session.platform.board, request)
    return {job.configuration for each in benched for job in each.further_round(each.coarse())}


def within(store: Store, session: Session, **asked: Any) -> tuple[int, int]:
    """Return how many sums there are, and how many within 1 %."""
    request = replace(BenchRequest(rounds=None), **asked)
    benched = further.benched_in(store, session.platform.board, request)
    reached = SumsReached.of([sum_ for each in benched for sum_ in each.sums], 0.01)
    return (0, 0) if reached is None else (reached.sums, reached.within)


def test_where_models_are_named_no_other_sum_counts(measured: Store, session: Session) -> None:
    assert visited_again(measured, session, workloads=[LARGE.key]) == set()
    assert within(measured, session, workloads=[LARGE.key]) == (1, 1)
    assert visited_again(measured, session, workloads=[SMALL.key]) == {UNSTEADY}
    assert within(measured, session, workloads=[SMALL.key]) == (1, 0)


def test_a_part_of_a_sum_is_as_precise_as_the_whole_needs_it(
    measured: Store, session: Session
) -> None:
    """Of one kind alone, or a slice of a build: what was measured before is in the sum."""
    slice_ = {"configurations": [UNSTEADY.key], "workloads": [LARGE.key]}
    assert visited_again(measured, session, **slice_) == set()
    assert within(measured, session, **slice_) == (1, 1)
    measured.save_workload(replace(SMALL, calls=LARGE.calls))
    assert visited_again(measured, session, kinds={"relu"}) == set()


@pytest.mark.parametrize("called", [True, False])
def test_what_takes_the_device_no_time_gets_no_further_visit(
    called: bool, store: Store, session: Session
) -> None:
    """One visit has no interval, which is no reason to make more."""
    store.save_workload(workload(CONV, *[SQUARE] * called))
    store.save_configurations([SQUARE])
    took(store, session, CONV, 1.0)
    took(store, session, SQUARE, 0.0)
    keys = [CONV.key, SQUARE.key]
    assert visited_again(store, session, configurations=keys) == {CONV}


def on_gpu(session: Session) -> Platform:
    """A platform whose host is not its device."""
    return replace(session.platform, device=replace(session.platform.device, type="cuda"))


def test_host_times_are_taken_of_the_models_that_are_named(store: Store, session: Session) -> None:
    """Others call the same, some of it in another form."""
    asked = workload(CONV, RELU, name="second")
    other = replace(asked, name="first", calls=tuple(Call(c, "module") for c in (RELU, CONV)))
    captured = replace(asked, captured=True)
    store.save_workload(other)
    store.save_workload(asked, captured)
    request = BenchRequest(configurations=[CONV.key, RELU.key])
    everything = run._without_host_times(store, on_gpu(session), request)
    assert everything == [list(other.calls), list(asked.calls)]
    named = replace(request, workloads=[asked.key, captured.key])
    assert run._without_host_times(store, on_gpu(session), named) == [list(asked.calls)]
