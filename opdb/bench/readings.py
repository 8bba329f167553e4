"""The readings of a run of a whole model, and how they become its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opdb.bench.session import Session, new_id, now, release
from opdb.bench.visit import refusal
from opdb.errors import DatabaseError, OpdbError
from opdb.models.construction import ANY_FAILURE
from opdb.records import Json, Mode, ModelRun, Outcome, Stretch


@dataclass
class RunReadings:
    """Gathers the readings of a run, so that a failure half way leaves nothing undefined."""

    repeats: list[Stretch] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)
    kernels: dict[str, int] | None = None
    layers: dict[str, float] | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class RunTarget:
    """The target of a run: a workload (key) in a mode, under a setting beyond the campaign's.

    `outcomes` are the errors of opdb's own that are findings, each with the outcome it means; what
    torch raises is one always, as is what a model's code raises, which may be anything.
    """

    workload: str
    mode: Mode
    outcomes: Mapping[type[OpdbError], Outcome]
    setting: Mapping[str, Json] = field(default_factory=dict)

    def outcome(self, error: BaseException) -> tuple[Outcome, str] | None:
        """Return what an error means, and its reason; None where it is no finding."""
        if not isinstance(error, OpdbError):
            return refusal(error)
        if isinstance(error, DatabaseError):
            return None
        found = (outcome for kind, outcome in self.outcomes.items() if isinstance(error, kind))
        outcome = next(found, None)
        return None if outcome is None else (outcome, str(error))


def run_of(session: Session, target: RunTarget, measure: Callable[[RunReadings], None]) -> ModelRun:
    """Measure the target; a failure to measure it is a run with that outcome.

    Raises:
        OpdbError: `measure` raised one that is no finding.
        CannotMeasureError: the device stopped answering.
    """
    began_s, started_at = time.monotonic(), now()
    seen = RunReadings()
    outcome: Outcome = "ok"
    reason = None
    try:
        measure(seen)
    except ANY_FAILURE as error:
        found = target.outcome(error)
        if found is None:
            raise
        outcome, reason = found
    release(session)
    if outcome != "ok":
        session.check_alive()
    return ModelRun(
        id=new_id(),
        campaign=session.campaign.id,
        workload=target.workload,
        mode=target.mode,
        outcome=outcome,
        reason=reason,
        started_at=started_at,
        cost_s=time.monotonic() - began_s,
        repeats=tuple(seen.repeats) if outcome == "ok" else (),
        peak_memory_bytes=seen.peak_memory_bytes,
        kernels=seen.kernels,
        layers=seen.layers,
        flags=tuple(dict.fromkeys(seen.flags)),
        setting=target.setting,
        facts=seen.facts,
    )
