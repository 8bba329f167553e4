"""A predicted pass as a trace: when each call is issued and run, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.predicted import Conditions, Predicted, Question
from opdb.api.predictions import Tell, ask_one, mode_for
from opdb.errors import NothingMeasuredError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.words import describe, identity
from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.compose import Schedule
    from opdb.trace.inductor import Written


@dataclass(frozen=True)
class Track:
    """A row of the summary: slices of a track, the time that they take (s), and its energy (J)."""

    name: str
    slices: int | None
    time_s: float
    energy_j: float | None


TRACKS: Table[Track] = Table(
    Column("track", lambda row: row.name, title=""),
    Column("slices", lambda row: row.slices, title="slices"),
    Column("time_s", lambda row: row.time_s, title="time", unit="s"),
    Column("energy_j", lambda row: row.energy_j, title="energy", unit="J"),
)


@dataclass(frozen=True, repr=False)
class Traced(Report):
    """The trace of a prediction; printed, what is on its tracks."""

    predicted: Predicted

    @property
    def schedule(self) -> Schedule:
        """When each call is issued and run."""
        assert self.predicted.schedule is not None
        return self.predicted.schedule

    def trace(self) -> dict[str, Json]:
        """Return the trace as Chrome trace JSON."""
        from opdb.trace import chrome_trace

        return chrome_trace(self.predicted.prediction, self.schedule)

    def to_bytes(self, *, compressed: bool = False) -> bytes:
        """Return the content of a trace file, compressed by gzip if asked (for a name in .gz)."""
        from opdb.trace import as_bytes

        return as_bytes(self.trace(), compressed=compressed)

    def inductor(self) -> Written:
        """Return the operators' times as a profile that Inductor reads; this needs torch."""
        from opdb.trace.inductor import inductor_profile

        return inductor_profile(self.schedule)

    def chakra(self) -> bytes:
        """Return the content of a Chakra execution trace.

        Raises:
            InputError: mlc-chakra is not installed.
        """
        from opdb.trace.chakra import chakra_trace

        return chakra_trace(self.predicted.prediction, self.schedule)

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb trace --json` prints: a summary, not the trace."""
        found = self.predicted.prediction
        return {
            **identity(found.workload),
            "device": found.device.slug,
            "board": found.board,
            "mode": found.mode,
            "complete": found.complete,
            "tracks": TRACKS.documents(self.tracks()),
        }

    def tracks(self) -> list[Track]:
        """Return what is on the tracks; the last three belong to the device."""
        found, schedule = self.predicted.prediction, self.schedule
        runs = [slot for slot in schedule.slots if slot.runs]
        busy_s = math.fsum(slot.device_s for slot in runs)
        waiting_s = max(schedule.end_s - schedule.start_s - busy_s, 0.0)
        base_w = schedule.base_power_w if found.energy_j is not None else None
        waiting_j = None if base_w is None else base_w * waiting_s
        busy_j = None if found.energy_j is None else found.energy_j - (waiting_j or 0.0)
        assert found.time_s is not None
        rows = [
            Track("device works", len(runs), busy_s, busy_j),
            Track("device waits", None, waiting_s, waiting_j),
            Track("whole pass", None, found.time_s, found.energy_j),
        ]
        if schedule.issued:
            issued_s = math.fsum(s.span.host_end_s - s.span.host_start_s for s in schedule.slots)
            rows.insert(0, Track("host issues", len(schedule.slots), issued_s, None))
        return rows

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb trace` prints."""
        from opdb.compose import shortfall

        found = self.predicted.prediction
        lacks = shortfall(found)
        yield (
            f"{found.workload.name}, {describe(found.workload)}, {found.mode}, "
            f"on {found.device.name} ({found.board})" + ("" if lacks is None else f": {lacks}")
        )
        if found.lacking:
            count = sum(share.count for share in found.lacking)
            yield f"not in the trace: {plural(count, 'call')} without a cost"
        yield Rows(TRACKS, self.tracks())


def trace(
    model: str,
    *,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Unpack[ModelWords],
) -> Traced:
    """Lay out the predicted pass of a model in time, as `opdb trace MODEL` does.

    Options are those of `predict`.

    Raises:
        InputError: the model, device or mode is not known, or the model cannot be harvested.
        NothingMeasuredError: nothing of it that takes time has a cost.
    """
    conditions = conditions or Conditions()
    question = Question(model, ModelOptions.parse(**said), mode_for(mode, conditions))
    return traced(question, conditions, db=db, tell=tell)


def traced(
    question: Question, conditions: Conditions, *, db: str | None = None, tell: Tell | None = None
) -> Traced:
    """Answer one question with a trace.

    Raises:
        InputError: it cannot be answered.
        NothingMeasuredError: nothing of it that takes time has a cost.
    """
    found = ask_one(question, replace(conditions, schedule=True), db=db, tell=tell)
    prediction = found.prediction
    if prediction.time_s is None or not prediction.workload.calls:
        how = f"; to measure it, on the device: {found.how_to_measure}"
        raise NothingMeasuredError(
            f"{prediction.workload.name}, {describe(prediction.workload)}: no call has a cost on "
            f"{prediction.device.slug}, so there is nothing to trace"
            + (how if found.how_to_measure else "")
        )
    return Traced(found)
