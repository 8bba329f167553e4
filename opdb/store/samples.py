"""Columns that hold raw samples: their encoding, and what could have been measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TypeVar

from opdb.errors import SamplesLeftOutError
from opdb.records import CalibratedCall, Json, Neighbours, Stretch, canonical_json
from opdb.store import ranges
from opdb.store.fields import COLLATED, Field
from opdb.store.raw import (
    decode_layers,
    decode_neighbours,
    decode_stretch,
    decode_stretches,
    decode_times,
    encode_layers,
    encode_neighbours,
    encode_stretch,
    encode_stretches,
    encode_times,
)

LEFT_OUT = "-"
"""The text in place of a visit's raw samples where they lie apart; see `opdb.store.set_samples`.

In place of host times the number of their blocks follows it, which predictions need."""

APART = {"visit": ("neighbours", "restore", "stretch"), "host_visit": ("times",)}
"""The columns of visits whose raw samples may lie apart, by table."""

Samples = TypeVar("Samples")


def are_left_out(text: str | None) -> bool:
    """Return whether a text stands in place of raw samples; packed, none begins so."""
    return text is not None and text.startswith(LEFT_OUT)


def left_out(name: str, samples: Json) -> str:
    """Return the text in place of a column's raw samples.

    Raises:
        TypeError: host times are no list.
    """
    return f"{LEFT_OUT}{len(samples)}" if name in APART["host_visit"] else LEFT_OUT


def blocks(text: str) -> int:
    """Return the number of blocks of host times, which may lie apart.

    Raises:
        ValueError: the text is neither.
    """
    return int(text.removeprefix(LEFT_OUT)) if are_left_out(text) else len(decode_times(text))


def _unless_left_out(decode: Callable[[str], Samples]) -> Callable[[str], Samples]:
    """Return a decoder that raises SamplesLeftOutError where there are no samples to decode."""

    def decode_kept(text: str) -> Samples:
        if are_left_out(text):
            raise SamplesLeftOutError
        return decode(text)

    return decode_kept


def _named(name: str, allowed: ranges.Range, values: Iterable[float]) -> None:
    try:
        allowed.check_all(values)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def _check_stretch(found: Stretch) -> None:
    if not found.replay_times_s:
        raise ValueError("a stretch without a single time")
    _named("calls", ranges.POSITIVE_COUNT, [found.calls_per_replay])
    _named("the duration", ranges.DURATION_S, [found.duration_s])
    _named("the busy share", ranges.POSITIVE_SHARE, [found.busy_share])
    _named("a time", ranges.POSITIVE_S, found.replay_times_s)
    _named("an eager time", ranges.DURATION_S, found.eager_times_s)
    _named("a clock", ranges.CLOCK_HZ, found.clock_samples_hz)
    for name, allowed, samples in (
        ("a power", ranges.POWER_W, found.power_samples),
        ("the counter", ranges.ENERGY_J, found.counter_edges),
    ):
        if samples:
            moments, values = zip(*samples, strict=True)
            _named(f"{name}'s moment", ranges.DURATION_S, moments)
            _named(name, allowed, values)
    if found.temperature_c is not None:
        _named("the temperature", ranges.TEMPERATURE_C, [found.temperature_c])
    if found.utilization is not None:
        _named("the utilization", ranges.SHARE, [found.utilization])


def _check_stretches(found: tuple[Stretch, ...]) -> None:
    for stretch in found:
        _check_stretch(stretch)


def _check_neighbours(found: Neighbours) -> None:
    if not found.times_s or len(found.times_s) != len(found.alone_s):
        raise ValueError("times among neighbours without as many of these alone")
    _named("a time", ranges.POSITIVE_S, found.times_s)
    _named("a time of neighbours alone", ranges.DURATION_S, found.alone_s)
    for times in found.after.values():
        _check_neighbours(times)


def _check_times(found: tuple[float, ...]) -> None:
    if not found:
        raise ValueError("a host visit without a single time")
    _named("a time", ranges.DURATION_S, found)


def _check_layers(found: Mapping[str, float]) -> None:
    if not all(map(str.isprintable, found)):
        raise ValueError("a layer's name holds a control character")
    _named("a time", ranges.DURATION_S, list(found.values()))


def _encode_host_calls(calls: Iterable[CalibratedCall]) -> str:
    return canonical_json([{**asdict(c), "times_s": encode_times(c.times_s)} for c in calls])


def _decode_host_calls(text: str) -> tuple[CalibratedCall, ...]:
    return tuple(
        CalibratedCall(**{**each, "times_s": decode_times(each["times_s"])})
        for each in json.loads(text)
    )


STRETCH = Field(
    COLLATED,
    encode=encode_stretch,
    decode=_unless_left_out(decode_stretch),
    verify=_check_stretch,
)
STRETCHES = Field(
    COLLATED, encode=encode_stretches, decode=decode_stretches, verify=_check_stretches
)
NEIGHBOURS = Field(
    COLLATED,
    encode=encode_neighbours,
    decode=_unless_left_out(decode_neighbours),
    verify=_check_neighbours,
)
TIMES = Field(
    COLLATED, encode=encode_times, decode=_unless_left_out(decode_times), verify=_check_times
)
HOST_CALLS = Field(COLLATED, encode=_encode_host_calls, decode=_decode_host_calls)
LAYERS = Field(COLLATED, encode=encode_layers, decode=decode_layers, verify=_check_layers)
