"""`opdb trace`: a predicted pass as Chrome trace JSON, which Perfetto and tools of profilers open.

Categories and arguments are those of torch's profiler: a host slice is a `cpu_op`, a device slice a
`kernel` of a stream, and both of a call have one `correlation`. Times are in microseconds with all
their digits: rounded to the reader's nanoseconds downwards, no slice overlaps the next one.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import console, options
from opdb.commands.predict import Common, Conditions, Predicted, Question, Tell, ask_one, mode_for
from opdb.errors import NothingMeasuredError
from opdb.files import check_writable
from opdb.kinds import get_kind
from opdb.memory import bytes_moved
from opdb.predict.compose import Prediction, Schedule, Slot, shortfall
from opdb.records import Json
from opdb.spec import ModelSpec, describe, identity, title
from opdb.tables import Column, Report, Rows, Table, escaped
from opdb.units import MICRO, plural

PANEL = "predict"


Event = dict[str, Json]

HOST = {"pid": 1, "tid": 1}
DEVICE = {"pid": 2, "tid": 7}
PASS = {"pid": 2, "tid": 1}
"""The tracks: a process and a thread of it each."""

STREAM = 7
"""The CUDA stream that torch's profiler gives to the work of a single stream."""

GAP_S = 1e-12
"""A shorter gap between two slices is one of rounding."""

WAITS = "waits for the host"
CONTAINERS = "containers of modules"


def _chrome_trace(found: Prediction, schedule: Schedule) -> dict[str, Json]:
    """Return a trace: the host's queue, the device's, the power of the board, and the pass.

    The device's slices, waiting included, add up to the predicted time, and the power over that
    time to the predicted energy.
    """
    device = found.device
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [{"id": 0, "name": device.name}],
        "distributedInfo": {"rank": 0, "world_size": 1},
        "opdb": _about(found),
        "traceEvents": [
            *_names(found, schedule),
            _whole(found, schedule),
            *_host_events(schedule),
            *_device_events(found, schedule),
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
    """Yield the names of processes and threads, in the order in which they are to be shown."""
    tracks = [
        (PASS, f"{found.device.name} (predicted)", "pass"),
        (DEVICE, f"{found.device.name} (predicted)", "device queue"),
    ]
    if found.device.type != "cpu":
        tracks.insert(0, (HOST, "host (predicted)", "host queue"))
    for order, (track, process, thread) in enumerate(tracks):
        for name, value in (("process_name", process), ("thread_name", thread)):
            yield {"ph": "M", "ts": 0, **track, "name": name, "args": {"name": value}}
        for name in ("process_sort_index", "thread_sort_index"):
            yield {"ph": "M", "ts": 0, **track, "name": name, "args": {"sort_index": order}}
    if found.device.type != "cpu" and not schedule.issued:
        name = "launch of the CUDA graph"
        yield {"ph": "i", "s": "t", "ts": 0, **HOST, "cat": "cpu_op", "name": name, "args": {}}


def _whole(found: Prediction, schedule: Schedule) -> Event:
    name = f"{escaped(found.workload.name)}, {describe(found.workload)}, {found.mode}"
    about = _about(found)
    return _slice(PASS, "user_annotation", name, (schedule.start_s, schedule.end_s), about)


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


def _device_events(found: Prediction, schedule: Schedule) -> Iterator[Event]:
    """Yield a slice a call that the device works on, and one each time it waits."""
    waits = CONTAINERS if found.device.type == "cpu" else WAITS
    free_s = schedule.start_s
    for number, slot in enumerate(schedule.slots, start=1):
        if not slot.runs:
            continue
        start_s, end_s = slot.span.device_start_s, slot.span.device_end_s
        if start_s - free_s > GAP_S:
            yield _slice(DEVICE, "wait", waits, (free_s, start_s), {})
        args = {"device": 0, "context": 1, "stream": STREAM, "correlation": number}
        args |= {"External id": number, **_cost_of(slot, schedule)}
        title = slot.call.configuration.title
        yield _slice(DEVICE, "kernel", title, (start_s, end_s), args)
        free_s = end_s
    if schedule.end_s - free_s > GAP_S:
        yield _slice(DEVICE, "wait", waits, (free_s, schedule.end_s), {})


def _cost_of(slot: Slot, schedule: Schedule) -> dict[str, Json]:
    """Return what a call is and costs; only energy and power are with its transition."""
    configuration = slot.call.configuration
    cost, power_w = schedule.costs[configuration.key], _power_w(slot, schedule)
    energy = cost.dynamic_energy_j
    return {
        "operator": configuration.title,
        "configuration": configuration.key,
        "shapes": _shapes(list(configuration.inputs.values())),
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
    if schedule.base_power_w is None:
        return
    at_s: list[tuple[float, float]] = []
    free_s = schedule.start_s
    for slot in filter(lambda slot: slot.runs, schedule.slots):
        if slot.span.device_start_s - free_s > GAP_S:
            at_s.append((free_s, schedule.base_power_w))
        known_w = _power_w(slot, schedule)
        power_w = schedule.base_power_w if known_w is None else known_w
        at_s.append((slot.span.device_start_s, power_w))
        free_s = slot.span.device_end_s
    if schedule.end_s - free_s > GAP_S:
        at_s.append((free_s, schedule.base_power_w))
    at_s.append((schedule.end_s, schedule.base_power_w))
    for time_s, power_w in at_s:
        yield {
            "ph": "C", "ts": time_s / MICRO, **DEVICE, "name": "board power",
            "args": {"W": power_w},
        }  # fmt: skip


def _power_w(slot: Slot, schedule: Schedule) -> float | None:
    """Return the mean power of the board during a call and its transition (None: not known)."""
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


def _shapes(inputs: list[Json]) -> str:
    found = []
    for each in inputs:
        if isinstance(each, dict) and "shape" in each:
            found.append("x".join(map(str, each["shape"])) or "scalar")
        elif isinstance(each, list):
            found.append(f"[{_shapes(each)}]")
    return ", ".join(found)


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
        return self.predicted.schedule

    def trace(self) -> dict[str, Json]:
        return _chrome_trace(self.predicted.prediction, self.schedule)

    def to_bytes(self, *, compressed: bool = False) -> bytes:
        """Return the content of a trace file, compressed by gzip if asked (for a name in .gz)."""
        return as_bytes(self.trace(), compressed=compressed)

    def to_dict(self) -> dict[str, Json]:
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
        found = self.predicted.prediction
        lacks = shortfall(found)
        yield (
            f"{title(found.workload)}, {found.mode}, on {found.device.name} ({found.board})"
            + ("" if lacks is None else f": {lacks}")
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
        how = f"; to measure it, on the device: {found.how_to_measure}"
        raise NothingMeasuredError(
            f"{prediction.workload.name}, {describe(prediction.workload)}: no call has a cost on "
            f"{prediction.device.slug}, so there is nothing to trace"
            + (how if found.how_to_measure else "")
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
