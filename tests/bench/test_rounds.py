"""Rejected visits made again, duplicates, further rounds and anchors, on the processor."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from opdb.bench import calibrate, run
from opdb.bench.plan import MAX_REDONE, BenchRequest, left
from opdb.bench.run import BenchCampaign, BenchResult, Budget
from opdb.bench.session import Session, new_id
from opdb.bench.visit import VisitRequest, visit
from opdb.derive import costs as rejection
from opdb.derive.costs import is_rejected
from opdb.meters import Reading
from opdb.progress import Progress
from opdb.records import Visit
from opdb.store import Claims, Store
from opdb.workers import ALONE
from tests.bench.calls import CONV, RELU, RELU_IN_PLACE, SQUARE, workload
from tests.bench.test_run import benched
from tests.heard import Heard

pytestmark = pytest.mark.usefixtures("short")


class Drawing:
    """A meter of a board that draws so much, by the window asked for; base power is 50 W."""

    def __init__(self, powers_w: Iterator[float], reasons: Iterator[tuple[str, ...]]) -> None:
        self._powers_w, self._reasons = powers_w, reasons
        self._calibrated = False

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        watts = next(self._powers_w) if self._calibrated else 50.0
        reasons = next(self._reasons) if self._calibrated else ()
        self._calibrated = True
        samples = tuple(((end_s - start_s) * n / 10, watts) for n in range(11))
        return Reading(power_samples=samples, throttle_reasons=reasons)

    def close(self) -> None:
        pass


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let heat reject on this processor too; its times keep their tail."""
    hot = tuple(p for p in rejection.REASONS if p.startswith("clock held back"))
    monkeypatch.setattr(rejection, "ON_A_PROCESSOR", hot)


def draw(
    monkeypatch: pytest.MonkeyPatch,
    powers_w: Iterator[float],
    reasons: Iterator[tuple[str, ...]] | None = None,
) -> None:
    meter = Drawing(powers_w, reasons or itertools.repeat(()))
    monkeypatch.setattr(run, "open_meter", lambda platform: meter)


def roles(store: Store, board: str) -> Counter[tuple[str, str]]:
    return Counter((v.configuration, v.role) for v in store.visits(board))


HOT = ("hardware thermal slowdown",)
ANY = 1e9
"""A precision that everything has: no further rounds."""


@pytest.mark.usefixtures("strict")
def test_a_rejected_visit_is_kept_and_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_workload(workload(RELU, SQUARE))
    draw(monkeypatch, itertools.repeat(90.0), iter([HOT, (), (), HOT, *[()] * 9]))
    heard = Heard()
    result = benched(store, heard, duplicates=0.0, precision=ANY)
    made = store.visits(result.board)
    assert len(made) == 6 and sum(map(is_rejected, made)) == result.rejected == 2
    assert heard.planned == [4, 2]
    assert heard.said[-1] == "rejected or not precise yet: 2 visits; a further round"
    for found in store.costs(result.board).values():
        assert found[0].visits == 2, "rejected visits do not count"
        assert not any("thermal" in flag for flag in found[0].flags)
    assert benched(store, duplicates=0.0, precision=ANY).campaign is None


@pytest.mark.usefixtures("strict")
def test_what_is_always_rejected_is_given_up_and_still_has_a_cost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_workload(workload(RELU))
    draw(monkeypatch, itertools.repeat(90.0), itertools.repeat(HOT))
    result = benched(store, duplicates=0.0, precision=ANY)
    assert len(store.visits(result.board)) == 2 + MAX_REDONE
    [cost] = store.costs(result.board)[RELU.key]
    assert cost.visits == 2 + MAX_REDONE
    assert any(flag.startswith("rejected: heat held") for flag in cost.flags)
    assert benched(store, duplicates=0.0, precision=ANY).campaign is None


def test_duplicates_are_measured_blind_and_stored_apart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_workload(workload(RELU, SQUARE))
    asked: list[VisitRequest] = []

    def watched(session: Session, request: VisitRequest) -> list[Visit]:
        asked.append(request)
        return visit(session, request)

    monkeypatch.setattr(run, "visit", watched)
    result = benched(store, duplicates=1.0)
    assert {request.role for request in asked} == {"measurement"}
    assert roles(store, result.board) == {
        (c.key, role): 2 for c in (RELU, SQUARE) for role in ("measurement", "duplicate")
    }
    assert result.configurations == 2
    assert all(c.visits == 2 for [c] in store.costs(result.board).values())
    assert benched(store, duplicates=1.0).campaign is None


def test_rounds_go_on_for_what_is_not_precise_enough(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every window draws the same but those of one operator, each of which draws 20 W more."""
    store.save_workload(workload(RELU, SQUARE, CONV, RELU_IN_PLACE))
    uneasy = itertools.count(80.0, 20.0)  # never twice the same, rejected or not

    class Uneasy(BenchCampaign):
        def _visit(self, job: VisitRequest, shown: Progress) -> None:
            powers_w[0] = next(uneasy) if job.configuration == SQUARE else 90.0
            super()._visit(job, shown)

    powers_w = [90.0]
    monkeypatch.setattr(run, "BenchCampaign", Uneasy)
    draw(monkeypatch, (powers_w[0] for _ in itertools.count()))
    result = benched(store, duplicates=0.0, precision=0.03)
    visits = Counter(v.configuration for v in store.visits(result.board))
    assert visits[SQUARE.key] == 4
    judged = result.reached.within + result.reached.missed.total()
    assert judged == 4 and result.reached.missed["after 4 rounds"] >= 1
    assert result.reached.half_width is not None and result.typical_cost_s
    assert benched(store, duplicates=0.0, precision=ANY).campaign is None


@pytest.mark.parametrize("nth", range(4))
def test_what_fails_after_good_visits_is_not_asked_for_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Of two visits and two duplicates the n-th fails: the others are not made."""
    store.save_workload(workload(RELU))
    made, looked = itertools.count(), itertools.count()

    def failing(session: Session, request: VisitRequest) -> list[Visit]:
        [found] = visit(session, request)
        return [replace(found, outcome="error")] if next(made) == nth else [found]

    def looking(*asked: Any) -> list[VisitRequest]:
        assert next(looked) < 9, "it goes on for ever"
        return left(*asked)

    monkeypatch.setattr(run, "visit", failing)
    monkeypatch.setattr(run, "left", looking)
    result = benched(store, duplicates=1.0, precision=ANY)
    assert len(store.visits(result.board)) == nth + 1


def rounds_of(session: Session, store: Store) -> BenchCampaign:
    board = session.platform.board.uuid
    result = BenchResult(None, session.platform.device.slug, board)
    shared = Claims(store, "here", board), Budget(None), Heard(), ALONE
    return BenchCampaign(session, store, BenchRequest(rounds=3), *shared, result)


def test_base_power_is_measured_anew_in_further_campaigns(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opdb.meters.nvml.foreign_processes", lambda uuid: [])
    store.save_campaign(session.campaign)
    store.save_configurations([RELU])
    template = visit(session, VisitRequest(RELU))[0]

    def quick(session: Session, request: VisitRequest) -> list[Visit]:
        made = replace(template, id=new_id(), campaign=session.campaign.id, role=request.role)
        return [replace(made, configuration=request.configuration.key)]

    monkeypatch.setattr(run, "visit", quick)
    monkeypatch.setattr(run, "ANCHORS", (RELU,))
    monkeypatch.setattr(run, "ANCHOR_EVERY_S", 0.0)
    monkeypatch.setattr(run, "seconds_since", lambda moment: ages_s.pop(0))
    monkeypatch.setattr(calibrate, "_run_for", lambda load, seconds: None)  # waits for a GPU
    monkeypatch.setattr(Session, "on_gpu", True)
    ages_s: list[float] = []
    made = rounds_of(session, store)
    ages_s += [run.BASE_POWER_EVERY_S - 1, run.BASE_POWER_EVERY_S + 1, 0.0]
    job = VisitRequest(RELU)
    assert made.make([job, job, job])
    first, second = store.campaigns()
    for role in ("measurement", "anchor"):
        seen = store.visits(session.platform.board.uuid, role=role)
        assert Counter(visit.campaign for visit in seen) == {first.id: 1, second.id: 2}
    assert first.id == session.campaign.id
    assert second.calibration.notes[-1] == f"all but base power is of campaign {first.id}"
