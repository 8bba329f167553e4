"""What is pending, in which order; asked of a real database."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from opdb.bench.plan import plan, visits_wanted
from opdb.bench.session import Session, new_id
from opdb.bench.settings import current_settings
from opdb.bench.visit import VisitRequest, visit
from opdb.records import Board, Configuration, Outcome
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Store
from tests.bench.calls import ADD_IN_PLACE, CONV, RELU, RELU_IN_PLACE, SQUARE, UNKNOWN, workload

pytestmark = pytest.mark.usefixtures("short")
ALL = (CONV, RELU, RELU_IN_PLACE, ADD_IN_PLACE, SQUARE)
OTHER_TF32 = {**DEFAULT_SETTINGS, "tf32_convolution": False}


@pytest.fixture
def harvested(store: Store) -> Store:
    store.save_workload(workload(*ALL, *ALL))
    return store


def visited(
    store: Store, session: Session, configuration: Configuration, *outcomes: Outcome
) -> None:
    """Save visits of those outcomes, a real one's copies."""
    store.save_campaign(session.campaign)
    [made] = visit(session, VisitRequest(configuration))
    for outcome in outcomes:
        reason = None if outcome == "ok" else "said by the test"
        store.save_visit(replace(made, id=new_id(), outcome=outcome, reason=reason))


def pending(store: Store, session: Session, **changes: object) -> Counter[Configuration]:
    options = {"settings": DEFAULT_SETTINGS, "seed": 1, **changes}
    found = plan(store, session.platform.device.slug, **options)  # type: ignore[arg-type]
    return Counter(c for each in found.rounds for c in each)


def test_at_first_everything_is_wanted_twice(harvested: Store, session: Session) -> None:
    assert pending(harvested, session) == dict.fromkeys(ALL, 2)
    found = plan(harvested, session.platform.device.slug, DEFAULT_SETTINGS, seed=1)
    assert found.visits == 10
    assert found.rounds[1] == tuple(reversed(found.rounds[0]))
    other = plan(harvested, session.platform.device.slug, DEFAULT_SETTINGS, seed=2)
    assert other.rounds[0] != found.rounds[0]


def test_kinds_choose(harvested: Store, session: Session) -> None:
    assert pending(harvested, session, kinds={"relu"}) == {RELU: 2, RELU_IN_PLACE: 2}
    assert pending(harvested, session, kinds={"cat"}) == {}


def test_what_no_workload_calls_is_not_wanted(harvested: Store, session: Session) -> None:
    unused = Configuration("relu", {}, {"input": {"shape": [3], "dtype": "float32"}})
    harvested.save_configurations([unused])
    assert unused not in pending(harvested, session)


def test_a_visit_made_is_a_visit_less(harvested: Store, session: Session) -> None:
    visited(harvested, session, RELU, "ok")
    visited(harvested, session, CONV, "ok", "ok")
    visited(harvested, session, SQUARE, "ok", "ok", "ok")
    assert pending(harvested, session) == {RELU: 1, RELU_IN_PLACE: 2, ADD_IN_PLACE: 2}
    found = plan(harvested, session.platform.device.slug, DEFAULT_SETTINGS, seed=1)
    assert RELU not in found.rounds[0] and RELU in found.rounds[1]


def test_anchors_and_limited_visits_do_not_count(harvested: Store, session: Session) -> None:
    harvested.save_campaign(session.campaign)
    [made] = visit(session, VisitRequest(RELU, role="anchor"))
    harvested.save_visit(made)
    harvested.save_visit(replace(made, id=new_id(), role="limited"))
    assert pending(harvested, session)[RELU] == 2


def test_another_device_has_everything_pending(harvested: Store, session: Session) -> None:
    visited(harvested, session, RELU, "ok", "ok")
    found = plan(harvested, "another-device", DEFAULT_SETTINGS, seed=1)
    assert found.visits == 10


def test_a_setting_makes_pending_what_it_touches_alone(harvested: Store, session: Session) -> None:
    for configuration in ALL:
        visited(harvested, session, configuration, "ok", "ok")
    assert pending(harvested, session) == {}
    assert pending(harvested, session, settings=OTHER_TF32) == {CONV: 2}
    other_matmul = {**DEFAULT_SETTINGS, "tf32_matmul": True}
    assert pending(harvested, session, settings=other_matmul) == {SQUARE: 2}


@pytest.mark.parametrize("outcome", ["error", "out_of_memory", "unsupported"])
def test_a_failure_is_tried_again_when_asked(
    harvested: Store, session: Session, outcome: Outcome
) -> None:
    visited(harvested, session, RELU, outcome)
    assert RELU not in pending(harvested, session)
    assert pending(harvested, session, retry=True)[RELU] == 2


def test_after_one_visit_the_other_is_pending(harvested: Store, session: Session) -> None:
    visited(harvested, session, RELU, "ok")
    assert pending(harvested, session)[RELU] == 1


def test_wanted_visits_never_fall_below_none() -> None:
    setting = relevant_setting("relu", DEFAULT_SETTINGS)
    seen: Counter[Outcome] = Counter({"ok": 7})
    assert visits_wanted({(RELU.key, setting): seen}, RELU, DEFAULT_SETTINGS) == 0
    assert visits_wanted({}, RELU, DEFAULT_SETTINGS) == 2


def test_a_kind_of_a_newer_version_stops_no_bench(store: Store, session: Session) -> None:
    store.save_workload(workload(RELU, UNKNOWN))
    assert pending(store, session) == {RELU: 2, UNKNOWN: 2}


def test_the_defaults_are_those_of_a_fresh_process() -> None:
    assert current_settings() == DEFAULT_SETTINGS


def test_a_board_is_asked_for_what_it_lacks_itself(harvested: Store, session: Session) -> None:
    visited(harvested, session, CONV, "ok", "ok")
    board = session.platform.board
    other = Board("CPU-other", board.device)
    visits = [
        plan(harvested, where, DEFAULT_SETTINGS, seed=1).visits
        for where in (board.device, board, other)
    ]
    assert visits == [8, 8, 10]
