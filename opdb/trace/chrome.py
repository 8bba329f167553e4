"""A predicted pass as Chrome trace JSON, which Perfetto and tools for torch's profiler open.

Categories and arguments are those of torch's profiler: a host slice is a `cpu_op`, a device slice a
`kernel` of a stream, and both of a call have one `correlation`. Times are in microseconds with all
their digits: rounded to the reader's nanoseconds downwards, no slice overlaps the next one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

from opdb.compose import CallCost, Prediction, Schedule, Slot
from opdb.footprint import bytes_moved
from opdb.kinds import get_kind
from opdb.layout import escaped
from opdb.lookup.words import describe, identity
from opdb.records import Json, Quantity
from opdb.units import MICRO

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


def chrome_trace(found: Prediction, schedule: Schedule) -> dict[str, Json]:
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
    """Return what the trace is of."""
    return {
        "kind": "prediction",
        **identity(found.workload),
        "mode": found.mode,
        "device": found.device.slug,
        "board": found.board,
        "complete": found.complete,
        "time_s": found.time_s,
        "time_interval_s": _listed(found.time_interval_s),
        "energy_j": found.energy_j,
        "energy_interval_j": _listed(found.energy_interval_j),
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
    """Return the slice of the whole pass."""
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
        args |= {"External id": number, **cost_of(slot, schedule)}
        title = slot.call.configuration.title
        yield _slice(DEVICE, "kernel", title, (start_s, end_s), args)
        free_s = end_s
    if schedule.end_s - free_s > GAP_S:
        yield _slice(DEVICE, "wait", waits, (free_s, schedule.end_s), {})


def cost_of(slot: Slot, schedule: Schedule) -> dict[str, Json]:
    """Return what a call is and costs; only energy and power are with its transition."""
    configuration = slot.call.configuration
    cost, power_w = schedule.costs[configuration.key], _power_w(slot, schedule)
    kind = get_kind(configuration.kind)
    return {
        "operator": configuration.title,
        "configuration": configuration.key,
        "shapes": _shapes(list(configuration.inputs.values())),
        "status": "estimated" if cost.is_estimated else "measured",
        "time_s": cost.time_s.mean,
        "time_interval_s": _interval(cost.time_s),
        "transition_s": slot.transition_s,
        "energy_j": None if power_w is None else power_w * slot.device_s,
        **_dynamic(cost),
        "power_w": power_w,
        "flops": kind.flops(configuration),
        "bytes": bytes_moved(configuration),
    }


def _dynamic(cost: CallCost) -> dict[str, Json]:
    energy = cost.dynamic_energy_j
    return {
        "dynamic_energy_j": None if energy is None else energy.mean,
        "dynamic_energy_interval_j": _interval(energy),
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
    """Return the shapes of tensors in text: "32x3x224x224, 64x3x7x7"."""
    found = []
    for each in inputs:
        if isinstance(each, dict) and "shape" in each:
            found.append("x".join(map(str, each["shape"])) or "scalar")
        elif isinstance(each, list):
            found.append(f"[{_shapes(each)}]")
    return ", ".join(found)


def _interval(quantity: Quantity | None) -> Json:
    if quantity is None or quantity.low is None or quantity.high is None:
        return None
    return [quantity.low, quantity.high]


def _listed(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else list(interval)
