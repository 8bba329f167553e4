"""Visits on the processor: every outcome, and what is kept of it."""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.replay import Observation
from opdb.bench.session import UNCALIBRATED, Session
from opdb.bench.visit import (
    VisitRequest,
    is_at_full_clock,
    session_flags,
    visit,
)
from opdb.derive.costs import call_times_s, visit_cost
from opdb.records import Configuration, Device, Outcome, Outputs, Stretch, Weights
from tests.bench.calls import (
    CONV,
    HUGE,
    IMPOSSIBLE,
    NO_GROUP,
    OTHER_PASS,
    RELU,
    RELU_IN_PLACE,
    UNKNOWN,
)
from tests.meters.replay import ReplayMeter

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
TRAINED = replace(CONV, gradient=True)
pytestmark = pytest.mark.usefixtures("short")


@pytest.mark.parametrize(
    ("request_", "outputs"),
    [
        (VisitRequest(CONV), "reused"),
        (VisitRequest(TRAINED), "fresh"),
        (VisitRequest(CONV, role="anchor"), "fresh"),
        (VisitRequest(OTHER_PASS), "fresh"),
        (VisitRequest(TRAINED, weights="hot"), "reused"),
    ],
)
def test_calls_of_training_and_anchors_with_cold_weights_write_to_fresh_memory(
    request_: VisitRequest, outputs: Outputs
) -> None:
    assert request_.outputs == outputs


@pytest.mark.parametrize(
    ("configuration", "weights", "outputs", "copies"),
    [
        (CONV, "cold", "reused", 10),
        (TRAINED, "cold", "fresh", 5),
        (TRAINED, "hot", "reused", 1),
    ],
    ids=["inference", "training", "training, hot"],
)
def test_a_visit_tells_where_its_outputs_went_and_rotates_for_it(
    session: Session, configuration: Configuration, weights: Weights, outputs: Outputs, copies: int
) -> None:
    device = replace(session.platform.device, l2_bytes=6400)
    there = replace(session, platform=replace(session.platform, device=device))
    [made] = visit(there, VisitRequest(configuration, weights=weights))
    assert (made.outcome, made.outputs, made.copies) == ("ok", outputs, copies)


def test_an_operator_is_measured(session: Session) -> None:
    began_s = time.monotonic()
    [made] = visit(session, VisitRequest(CONV))
    elapsed_s = time.monotonic() - began_s
    assert (made.outcome, made.reason, made.role) == ("ok", None, "measurement")
    assert (made.campaign, made.configuration) == (session.campaign.id, CONV.key)
    assert made.setting == '{"cudnn_benchmark":false,"tf32_convolution":true}'
    assert (made.issue, made.kernels, made.restore) == ("eager", None, None)
    assert all(t > 0 for t in made.stretch.replay_times_s)
    assert made.stretch.duration_s <= made.cost_s <= elapsed_s


def test_restoring_is_measured_once_a_campaign(session: Session) -> None:
    [first] = visit(session, VisitRequest(RELU_IN_PLACE))
    [second] = visit(session, VisitRequest(RELU_IN_PLACE))
    assert first.restore is not None
    assert first.restore is second.restore
    cost = visit_cost(first, UNCALIBRATED)
    assert cost.time_s < statistics.fmean(call_times_s(first.stretch))


@pytest.mark.parametrize(
    ("configuration", "outcome", "said"),
    [
        (IMPOSSIBLE, "error", "RuntimeError: .*channels"),
        (HUGE, "out_of_memory", "allocate 70368744177664 bytes"),
        (UNKNOWN, "unsupported", "unknown kind 'convolute'"),
        (OTHER_PASS, "unsupported", "nothing of this relu needs a gradient"),
        (NO_GROUP, "unsupported", "no group may call 'aten.add_.Tensor'"),
    ],
    ids=["impossible shape", "too large", "unknown kind", "backward", "no group"],
)
def test_what_cannot_be_measured_is_an_outcome(
    session: Session, configuration: Configuration, outcome: Outcome, said: str
) -> None:
    [made] = visit(session, VisitRequest(configuration))
    assert made.outcome == outcome
    assert made.reason is not None and "\n" not in made.reason
    assert re.search(said, made.reason)
    assert (made.stretch, made.restore, made.kernels, made.copies) == (None, None, None, 0)
    assert made.cost_s >= 0
    assert visit_cost(made, UNCALIBRATED) is None
    [after] = visit(session, VisitRequest(RELU))
    assert after.outcome == "ok", "a failure leaves the campaign usable"


def throttled(session: Session, first_s: float, last_s: float, limit_w: float) -> tuple[str, ...]:
    """Flag a window of the recorded trace as a stretch on a board of that power limit."""
    reading = ReplayMeter(TRACE).window(first_s, last_s)
    device = Device("a-board", "a board", "cuda", limit_w, None, None, 1.98e9)
    there = replace(session, platform=replace(session.platform, device=device))
    stretch = Stretch(
        1,
        (0.01,) * 3,
        last_s - first_s,
        1.0,
        power_samples=reading.power_samples,
        clock_samples_hz=reading.clock_samples_hz,
    )
    return session_flags(there, Observation(stretch, reading))


def test_a_clock_below_its_highest_is_told_and_why(session: Session) -> None:
    free = throttled(session, 1.4, 2.4, 700)
    held = throttled(session, 3.9, 4.9, 700)
    far_from_the_limit = throttled(session, 3.9, 4.9, 1000)
    assert free == ()
    assert [flag.split(":")[0] for flag in held] == ["at the power limit"]
    assert [flag.split(":")[0] for flag in far_from_the_limit] == ["clock below its highest"]
    assert is_at_full_clock(free)
    assert not is_at_full_clock(held) and not is_at_full_clock(far_from_the_limit)
