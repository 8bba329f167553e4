"""From what a run saw to its record: findings are outcomes, everything else goes on its way."""

from __future__ import annotations

import pytest

from opdb.bench.model import Outcomes, RunReadings, run_of
from opdb.bench.session import Session
from opdb.errors import InputError, NotCompiledError, OpdbError, RefusedError, UnsupportedError
from opdb.records import Stretch

OUTCOMES: Outcomes = {InputError: "error", UnsupportedError: "unsupported"}
STRETCH = Stretch(1, (0.5,), 0.5, 1.0)


def fill(seen: RunReadings) -> None:
    seen.repeats.append(STRETCH)
    seen.flags += ["one", "another", "one"]
    seen.facts["label"] = "mine"
    seen.kernels, seen.layers, seen.peak_memory_bytes = {"gemm": 2}, {"fc": 0.5}, 64


def test_what_was_seen_is_recorded(session: Session) -> None:
    run = run_of(session, "workload", "eager", fill, OUTCOMES, {"benchmark": True})
    assert (run.outcome, run.reason, run.repeats) == ("ok", None, (STRETCH,))
    assert (run.workload, run.mode, run.setting) == ("workload", "eager", {"benchmark": True})
    assert run.campaign == session.campaign.id and run.cost_s > 0
    assert (run.flags, run.facts) == (("one", "another"), {"label": "mine"})
    assert (run.kernels, run.layers, run.peak_memory_bytes) == ({"gemm": 2}, {"fc": 0.5}, 64)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (InputError("no such folder"), "error", "no such folder"),
        (UnsupportedError("no kernel"), "unsupported", "no kernel"),
        (RefusedError("refused", status=3000), "unsupported", "refused"),
        (RuntimeError("wrong shape\nmore"), "error", "RuntimeError: wrong shape"),
        (MemoryError("too much"), "out_of_memory", "too much"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_finding_is_an_outcome_and_half_a_measurement_is_none(
    session: Session, error: Exception, outcome: str, reason: str
) -> None:
    def fails(seen: RunReadings) -> None:
        fill(seen)
        raise error

    run = run_of(session, "workload", "eager", fails, OUTCOMES)
    assert (run.outcome, run.reason, run.repeats) == (outcome, reason, ())
    assert run.kernels == {"gemm": 2} and run.facts == {"label": "mine"}


@pytest.mark.parametrize("error", [NotCompiledError("as it is"), OpdbError("a full disk")])
def test_what_is_no_finding_goes_on_its_way(session: Session, error: OpdbError) -> None:
    def fails(seen: RunReadings) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        run_of(session, "workload", "eager", fails, OUTCOMES)
