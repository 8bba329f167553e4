"""`opdb trace`: a predicted pass as Chrome trace JSON, which Perfetto and tools of profilers open.

Categories and arguments are those of torch's profiler: a host slice is a `cpu_op`, a device slice a
`kernel` of a stream, and both of a call have one `correlation`. Times are in microseconds with all
their digits: rounded to the reader's nanoseconds downwards, no slice overlaps the next one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import console, options
from opdb.commands._predictions import ALONE, in_words, prediction_lines
from opdb.commands.predict import Common, Conditions, Predicted, Question, Tell, ask_one, mode_for
from opdb.errors import NothingMeasuredError
from opdb.files import check_writable
from opdb.kinds import get_kind
from opdb.memory import bytes_moved
from opdb.predict.compose import Prediction, Schedule, Slot
from opdb.records import Json
from opdb.spec import ModelSpec, describe, identity
from opdb.tables import Report, Rows
from opdb.units import MICRO, plural

PANEL = "predict"


Event = dict[str, Json]

HOST = {"pid": 1, "tid": 1}
DEVICE = {"pid": 2, "tid": 7}
"""The tracks: a process and a thread of it each."""

STREAM = 7
"""The CUDA stream that torch's profiler gives to the work of a single stream."""

GAP_S = 1e-12
"""A shorter gap between two slices is one of rounding."""

WAITS = "waits for the host"


def _chrome_trace(found: Prediction, schedule: Schedule) -> dict[str, Json]:
    """Return a trace: the host's queue, the device's, and the power of the board.

    The device's slices, waiting included, add up to the predicted time, and the power over that
    time to the predicted energy.
    """
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [{"id": 0, "name": found.device.name}],
        "distributedInfo": {"rank": 0, "world_size": 1},
        "opdb": _about(found),
        "traceEvents": [
            *_names(found, schedule),
            *_host_events(schedule),
            *_device_events(schedule),
            *_power_events(schedule),
        ],
    }


def as_bytes(trace: dict[str, Json], *, compressed: bool = False) -> bytes:
    """Return a trace as the content of a file, compressed by gzip if asked."""
    text = json.dumps(trace, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    content = text.encode()
    return gzip.compress(content, mtime=0) if compressed else content


def _about(found: Prediction) -> dict[str, Json]:
    return {
        "kind": "prediction",
        **identity(found.workload),
        "mode": found.mode,
        "device": found.device.slug,
        "board": found.board,
        "complete": found.complete,
        "time_s": found.time_s,
        "time_interval_s": found.time_interval_s and list(found.time_interval_s),
        "energy_j": found.energy_j,
        "energy_interval_j": found.energy_interval_j and list(found.energy_interval_j),
    }


def _names(found: Prediction, schedule: Schedule) -> Iterator[Event]:
    tracks = [(DEVICE, f"{found.device.name} (predicted)", "device queue")]
    if schedule.issued:
        tracks.insert(0, (HOST, "host (predicted)", "host queue"))
    for track, process, thread in tracks:
        for name, value in (("process_name", process), ("thread_name", thread)):
            yield {"ph": "M", "ts": 0, **track, "name": name, "args": {"name": value}}


def _host_events(schedule: Schedule) -> Iterator[Event]:
    """Yield a slice a call that the host issues, and an arrow to the device where it works."""
    if not schedule.issued:
        return
    for number, slot in enumerate(schedule.slots, start=1):
        span, configuration = slot.span, slot.call.configuration
        args = {
            "External id": number,
            "correlation": number,
            "form": slot.call.form,
            "configuration": configuration.key,
        }
        within = span.host_start_s, span.host_end_s
        yield _slice(HOST, "cpu_op", configuration.title, within, args)
        if slot.runs:
            arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
            yield {"ph": "s", "ts": span.host_start_s / MICRO, **HOST, **arrow}
            yield {"ph": "f", "bp": "e", "ts": span.device_start_s / MICRO, **DEVICE, **arrow}


def _stretches(schedule: Schedule) -> Iterator[tuple[int, Slot | None, tuple[float, float]]]:
    """Yield what the device does, one after the other: a call, with its number, or waiting."""
    free_s = schedule.start_s
    for number, slot in enumerate(schedule.slots, start=1):
        if slot.runs:
            start_s, end_s = slot.span.device_start_s, slot.span.device_end_s
            if start_s - free_s > GAP_S:
                yield 0, None, (free_s, start_s)
            yield number, slot, (start_s, end_s)
            free_s = end_s
    if schedule.end_s - free_s > GAP_S:
        yield 0, None, (free_s, schedule.end_s)


def _device_events(schedule: Schedule) -> Iterator[Event]:
    for number, slot, within_s in _stretches(schedule):
        if slot is None:
            yield _slice(DEVICE, "wait", WAITS, within_s, {})
            continue
        args = {"device": 0, "context": 1, "stream": STREAM, "correlation": number}
        args |= {"External id": number, **_cost_of(slot, schedule)}
        yield _slice(DEVICE, "kernel", slot.call.configuration.title, within_s, args)


def _cost_of(slot: Slot, schedule: Schedule) -> dict[str, Json]:
    """Return what a call is and costs; only energy and power are with its transition."""
    configuration = slot.call.configuration
    cost, power_w = schedule.costs[configuration.key], _power_w(slot, schedule)
    energy = cost.dynamic_energy_j
    return {
        "operator": configuration.title,
        "configuration": configuration.key,
        "what": in_words(configuration),
        "status": "estimated" if cost.is_estimated else "measured",
        "time_s": cost.time_s.mean,
        "time_interval_s": cost.time_s.interval,
        "transition_s": slot.transition_s,
        "energy_j": None if power_w is None else power_w * slot.device_s,
        "dynamic_energy_j": energy and energy.mean,
        "dynamic_energy_interval_j": energy and energy.interval,
        "power_w": power_w,
        "flops": get_kind(configuration.kind).flops(configuration),
        "bytes": bytes_moved(configuration),
    }


def _power_events(schedule: Schedule) -> Iterator[Event]:
    """Yield the power of the board during each slice: base power where a call has no energy."""
    base_w = schedule.base_power_w
    if base_w is None:
        return
    at_s = []
    for _, slot, (start_s, _) in _stretches(schedule):
        known_w = None if slot is None else _power_w(slot, schedule)
        at_s.append((start_s, base_w if known_w is None else known_w))
    for time_s, power_w in [*at_s, (schedule.end_s, base_w)]:
        yield {
            "ph": "C", "ts": time_s / MICRO, **DEVICE, "name": "board power",
            "args": {"W": power_w},
        }  # fmt: skip


def _power_w(slot: Slot, schedule: Schedule) -> float | None:
    energy = schedule.costs[slot.call.configuration.key].dynamic_energy_j
    if schedule.base_power_w is None or energy is None:
        return None
    return schedule.base_power_w + energy.mean / slot.device_s


def _slice(
    track: dict[str, int], category: str, name: str, within_s: tuple[float, float], args: Json
) -> Event:
    start_us, end_us = (each / MICRO for each in within_s)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        **track,
        "ts": start_us,
        "dur": end_us - start_us,
        "args": args,
    }


@dataclass(frozen=True, repr=False)
class Traced(Report):
    """The trace of a prediction; printed, what the pass takes."""

    predicted: Predicted

    @property
    def schedule(self) -> Schedule:
        return self.predicted.schedule

    def trace(self) -> dict[str, Json]:
        return _chrome_trace(self.predicted.prediction, self.schedule)

    def to_bytes(self, *, compressed: bool = False) -> bytes:
        """Return the content of a trace file, compressed by gzip if asked (for a name in .gz)."""
        return as_bytes(self.trace(), compressed=compressed)

    def to_dict(self) -> dict[str, Json]:
        return _about(self.predicted.prediction)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found = self.predicted.prediction
        yield self.predicted.heading
        if found.lacking:
            count = sum(share.count for share in found.lacking)
            yield f"not in the trace: {plural(count, 'call')} without a cost"
        yield Rows(ALONE, prediction_lines(self.predicted.answer, self.predicted.figures)[:3])


def trace(
    model: str,
    *,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Any,
) -> Traced:
    """Lay out the predicted pass of a model in time, as `opdb trace MODEL` does.

    Options are those of `predict`.
    """
    conditions = conditions or Conditions()
    question = Question(model, ModelSpec.parse(**said), mode_for(mode, conditions))
    found = ask_one(question, conditions, db=db, tell=tell)
    prediction = found.prediction
    if prediction.time_s is None or not prediction.workload.calls:
        raise NothingMeasuredError(
            f"{prediction.workload.name}, {describe(prediction.workload)}: no call has a cost on "
            f"{prediction.device.slug}, so there is nothing to trace"
        )
    return Traced(found)


def run(
    model: Annotated[
        str,
        options.models("A model, or a summary file."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The trace; .gz compresses it.")
    ] = Path("trace.json"),
    mode: options.PredictedMode = "eager",
    said: options.Model = ModelSpec(),
    conditions: Common = Conditions(),
    out: options.Output = options.Output(),
) -> None:
    """Write the predicted pass of a model as Chrome trace JSON.

    It opens in Perfetto (ui.perfetto.dev) and in tools that read traces of torch's profiler. One
    track holds the host's queue, one the device's, one the power of the board. Each slice of the
    device has its operator, cost, interval, FLOPs and bytes. They add up to the prediction.
    """
    check_writable(output)
    found = trace(
        model, mode=mode, conditions=conditions, db=out.db, tell=out.note, **said.keywords()
    )
    console.save(output, found.to_bytes(compressed=output.suffix == ".gz"), quiet=out.quiet)
    out.answer(found)
