"""What is pending, in which order; asked of a real database."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from opdb.bench.plan import (
    MAX_REDONE,
    ROUNDS,
    SPREAD_SHARE,
    Benched,
    BenchRequest,
    Sum,
    is_duplicated,
)
from opdb.bench.session import Session, new_id
from opdb.bench.visit import VisitRequest, visit
from opdb.derive.costs import REJECTED
from opdb.growth import benched_configurations
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.memory import touched_bytes
from opdb.records import Board, Configuration, Outcome
from opdb.store import Store
from tests.bench.calls import ADD_IN_PLACE, CONV, RELU, RELU_IN_PLACE, SQUARE, UNKNOWN, workload
from tests.growth.test_steps import generation

pytestmark = pytest.mark.usefixtures("short")
ALONE = BenchRequest(seed=1, duplicates=0.0)
ALL = (CONV, RELU, RELU_IN_PLACE, ADD_IN_PLACE, SQUARE)
OTHER_TF32 = {**DEFAULT_SETTINGS, "tf32_convolution": False}


def plan(store: Store, board: Board, settings: Any, request: BenchRequest) -> Any:
    return Benched(store, board, request, settings).plan()


@pytest.fixture
def harvested(store: Store) -> Store:
    store.save_workload(workload(*ALL, *ALL))
    return store


def visited(
    store: Store,
    session: Session,
    configuration: Configuration,
    *outcomes: Outcome,
    **changes: Any,
) -> None:
    """Save visits of those outcomes, a real one's copies."""
    store.save_campaign(session.campaign)
    [made] = visit(session, VisitRequest(configuration))
    for outcome in outcomes:
        reason = None if outcome == "ok" else "said by the test"
        kept = replace(made, id=new_id(), outcome=outcome, reason=reason, **changes)
        store.save_visit(kept)


def pending(store: Store, session: Session, **changes: Any) -> Counter[Configuration]:
    settings = changes.pop("settings", DEFAULT_SETTINGS)
    request = replace(ALONE, **changes)
    found = plan(store, session.platform.board, settings, request)
    assert {job.role for each in found for job in each} <= {"measurement"}
    return Counter(job.configuration for each in found for job in each)


def test_at_first_everything_is_wanted_twice(harvested: Store, session: Session) -> None:
    assert pending(harvested, session) == dict.fromkeys(ALL, 2)
    found = plan(harvested, session.platform.board, DEFAULT_SETTINGS, ALONE)
    assert sum(map(len, found)) == 10
    assert found[1] == found[0][::-1]
    other = plan(harvested, session.platform.board, DEFAULT_SETTINGS, replace(ALONE, seed=2))
    assert other[0] != found[0]


def test_of_one_round_some_are_visited_twice_to_tell_how_visits_spread(
    store: Store, session: Session
) -> None:
    sizes = range(2, 202)
    tensors = [{"shape": [size], "dtype": "float32"} for size in sizes]
    many = [Configuration("relu", {}, {"input": tensor}) for tensor in tensors]
    store.save_workload(workload(*many))
    found = pending(store, session, rounds=1)
    twice = {c for c, count in found.items() if count == 2}
    assert set(found.values()) == {1, 2} and len(found) == len(many)
    assert twice == {c for c in many if is_duplicated(c, SPREAD_SHARE)}
    assert 0.05 * len(many) < len(twice) < 0.2 * len(many)
    once = next(c for c in many if c not in twice)
    visited(store, session, once, "ok")
    visited(store, session, next(iter(twice)), "ok")
    left = pending(store, session, rounds=1)
    assert left[once] == 0 and left[next(iter(twice))] == 1


def test_a_setting_makes_pending_what_it_touches_alone(harvested: Store, session: Session) -> None:
    for configuration in ALL:
        visited(harvested, session, configuration, "ok", "ok")
    assert pending(harvested, session) == {}
    assert pending(harvested, session, settings=OTHER_TF32) == {CONV: 2}
    other_matmul = {**DEFAULT_SETTINGS, "tf32_matmul": True}
    assert pending(harvested, session, settings=other_matmul) == {SQUARE: 2}


@pytest.mark.parametrize(
    ("good", "rejected", "wanted"),
    [(0, 1, 2), (1, 1, 1), (1, 2, 1), (0, 2, 2), (0, 3, 1), (0, 4, 0), (2, 3, 0)],
)
def test_rejected_visits_are_made_up_for_and_not_for_ever(
    harvested: Store, session: Session, good: int, rejected: int, wanted: int
) -> None:
    for _ in range(good):
        visited(harvested, session, RELU, "ok")
    for _ in range(rejected):
        visited(harvested, session, RELU, "ok", flags=(REJECTED + "said by the test",))
    assert pending(harvested, session)[RELU] == wanted
    assert pending(harvested, session, retry=True)[RELU] == ROUNDS - good
    assert rejected <= ROUNDS + MAX_REDONE


def everything(store: Store, board: Board, share: float = 1.0) -> Counter[tuple[str, str]]:
    """Count the planned visits by kind and role."""
    request = replace(ALONE, duplicates=share)
    found = plan(store, board, DEFAULT_SETTINGS, request)
    return Counter((j.configuration.key, j.role) for each in found for j in each)


def test_duplicates_lie_among_the_measurements(harvested: Store, session: Session) -> None:
    board = session.platform.board
    assert everything(harvested, board) == {
        (c.key, role): 2 for c in ALL for role in ("measurement", "duplicate")
    }
    request = replace(ALONE, duplicates=1.0, seed=2)
    first, second = plan(harvested, board, DEFAULT_SETTINGS, request)
    assert second == first[::-1]
    roles = [job.role for job in first]
    assert roles not in (sorted(roles), sorted(roles, reverse=True)), "mixed"


def test_weights_are_measured_in_the_states_that_workloads_leave_them_in(
    store: Store, session: Session
) -> None:
    """A workload that stays in the cache wants hot weights, a larger one cold ones."""
    small, large = workload(CONV, RELU), workload(*[CONV] * 50, name="large")
    store.save_workload(small)
    resident = (touched_bytes(small) + touched_bytes(large)) / 2
    board, request = session.platform.board, replace(ALONE, resident_bytes=resident)
    jobs = Counter(plan(store, board, DEFAULT_SETTINGS, request)[0])
    assert jobs == {VisitRequest(CONV, weights="hot"): 1, VisitRequest(RELU): 1}
    store.save_workload(large)
    jobs = Counter(plan(store, board, DEFAULT_SETTINGS, request)[0])
    assert jobs == {
        VisitRequest(CONV): 1,
        VisitRequest(CONV, weights="hot"): 1,
        VisitRequest(RELU): 1,
    }
    visited(store, session, CONV, "ok", "ok", weights="hot")
    jobs = Counter(plan(store, board, DEFAULT_SETTINGS, request)[0])
    assert jobs == {VisitRequest(CONV): 1, VisitRequest(RELU): 1}
    [found] = Benched(store, board, request, DEFAULT_SETTINGS).further_round([CONV.key])
    assert found == VisitRequest(CONV)


def test_a_given_order_is_kept_in_every_round_and_is_all_that_is_planned(
    harvested: Store, session: Session
) -> None:
    board, order = session.platform.board, (SQUARE.key, CONV.key, UNKNOWN.key, RELU.key)
    request = replace(ALONE, configurations=order)
    found = plan(harvested, board, DEFAULT_SETTINGS, request)
    assert [[job.configuration for job in each] for each in found] == [
        [SQUARE, CONV, RELU],
        [SQUARE, CONV, RELU],
    ]
    twice = plan(harvested, board, DEFAULT_SETTINGS, replace(request, duplicates=1.0))
    roles = [(job.configuration, job.role) for job in twice[0]]
    measured = [(c, "measurement") for c in (SQUARE, CONV, RELU)]
    assert roles == [*measured, *((c, "duplicate") for c, _ in measured)]
    visited(harvested, session, CONV, "ok", "ok")
    keys = {RELU.key, CONV.key, SQUARE.key}
    further = Benched(harvested, board, request, DEFAULT_SETTINGS).further_round(keys)
    assert [job.configuration for job in further] == [SQUARE, CONV, RELU]


def test_of_a_generation_few_steps_are_pending(store: Store, session: Session) -> None:
    """What another workload calls is pending, though it lies between a generation's knots."""
    whole = generation(101)
    store.save_workload(whole)
    benched = set(benched_configurations([whole]).values())
    assert set(pending(store, session)) == benched
    inner = next(c for c in whole.occurrences() if c not in benched)
    store.save_workload(workload(inner))
    assert set(pending(store, session)) == {*benched, inner}
    asked = [inner.key]
    assert set(pending(store, session, configurations=asked)) == {inner}


# Further visits go where sums are widest


def test_the_fewest_that_bring_a_sum_to_its_precision_are_visited_again() -> None:
    """Half widths of 0.2, 0.1, 0.05 and 0 of four parts of 1 J each: ± 5.7 % of the sum."""
    sum_ = Sum({"a": (1.0, 0.2), "b": (1.0, 0.1), "c": (1.0, 0.05), "d": (1.0, 0.0)})
    every = set("abcd")
    assert sum_.half_width == pytest.approx(math.sqrt(0.0525) / 4)
    assert sum_.coarse(0.06, every) == set()
    assert sum_.coarse(0.05, every) == {"a"}
    assert sum_.coarse(0.042, every) == {"a", "b"}
    assert sum_.coarse(0.01, every) == {"a", "b", "c"}, "what does not scatter is never"
    assert sum_.coarse(0.05, every - {"a"}) == {"b", "c"}, "what had all its visits is not"
