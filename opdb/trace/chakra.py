"""A predicted pass as a Chakra execution trace (MLCommons), which simulators and replayers read.

A node is a call that gives the device work. Each depends on the call before it, as the kernels of
one stream do. Chakra's own durations are whole microseconds, so times and energies are attributes,
too: doubles in base SI, under the names that the Chrome trace has.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from opdb.compose import Prediction, Schedule, Slot
from opdb.distribution import install
from opdb.errors import InputError
from opdb.lookup.words import identity
from opdb.records import Json
from opdb.trace.chrome import cost_of
from opdb.units import MICRO

SCHEMA = "1.0.0"
"""The version of Chakra's schema."""


def chakra_trace(found: Prediction, schedule: Schedule) -> bytes:
    """Return the content of a Chakra trace: its metadata, then a node a call, each with its length.

    Raises:
        InputError: mlc-chakra is not installed.
    """
    try:
        from chakra.schema.protobuf import et_def_pb2 as chakra
        from chakra.src.third_party.utils.protolib import encodeMessage
    except ImportError as error:
        raise InputError(
            f"a Chakra trace needs mlc-chakra, which is not installed; {install('chakra')}"
        ) from error
    content = io.BytesIO()
    about = {
        **identity(found.workload),
        "mode": found.mode,
        "device": found.device.slug,
        "board": found.board,
        "time_s": found.time_s,
        "energy_j": found.energy_j,
        "base_power_w": schedule.base_power_w,
    }
    attributes = list(_attributes(chakra, about))
    encodeMessage(content, chakra.GlobalMetadata(version=SCHEMA, attr=attributes))
    for node in _nodes(chakra, schedule):
        encodeMessage(content, node)
    return content.getvalue()


def _nodes(chakra: Any, schedule: Schedule) -> Iterator[Any]:
    running = [slot for slot in schedule.slots if slot.runs]
    for number, slot in enumerate(running):
        node = chakra.Node(
            id=number,
            name=slot.call.configuration.title,
            type=chakra.COMP_NODE,
            data_deps=[number - 1] if number else [],
            start_time_micros=round((slot.span.device_start_s - schedule.start_s) / MICRO),
            duration_micros=round(slot.device_s / MICRO),
        )
        node.attr.extend(_attributes(chakra, _told(slot, schedule)))
        yield node


def _told(slot: Slot, schedule: Schedule) -> dict[str, Json]:
    """Return the attributes of a node; `is_cpu_op`, `num_ops` and `tensor_size` are ASTRA-sim's."""
    cost = cost_of(slot, schedule)
    for name in ("time_s", "dynamic_energy_j"):
        interval = cost.pop(f"{name[:-2]}_interval_{name[-1]}")
        low, high = interval or (None, None)
        cost |= {f"{name}_low": low, f"{name}_high": high}
    return {
        **cost,
        "device_time_s": slot.device_s,
        "is_cpu_op": False,
        "num_ops": cost["flops"],
        "tensor_size": cost["bytes"],
    }


def _attributes(chakra: Any, about: dict[str, Json]) -> Iterator[Any]:
    for name, value in about.items():
        if value is None:
            continue
        if isinstance(value, bool):
            yield chakra.AttributeProto(name=name, bool_val=value)
        elif isinstance(value, int):
            yield chakra.AttributeProto(name=name, int64_val=value)
        elif isinstance(value, float):
            yield chakra.AttributeProto(name=name, double_val=value)
        else:
            text = "x".join(map(str, value)) if isinstance(value, list) else str(value)
            yield chakra.AttributeProto(name=name, string_val=text)
