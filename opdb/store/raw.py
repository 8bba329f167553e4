"""Raw samples as one compact text: JSON of integers, packed.

`json.loads(zlib.decompress(base64.b64decode(text)))` reads it. A stretch is an object with these
members; those that hold nothing are left out:

| member | holds |
|---|---|
| `f` | the encoding's number, 3 |
| `n` | calls per replay |
| `d` | duration, ns |
| `b` | busy share, millionths |
| `q` | the unit of `t`, ns |
| `t` | event times of the replays in that unit: the first, then each less the one before |
| `u` | utilization, ten-thousandths |
| `p` | power samples: µs since the sample before (the first: since the stretch began), mW, … |
| `e` | counter edges: µs since the edge before, µJ since the edge before, … |
| `c` | clock samples as runs: MHz, how many, … |
| `g` | eager event times of single calls, ns |
| `w` | temperature, tenths of a degree Celsius |

`q` is the largest unit that leaves all times whole: the events of an H200 tick every 32 ns, and
times above 0.1 s, which their type rounds more coarsely, have the unit 1. Reading back gives each
value to within half its unit; encoding what was read gives the same text. A missing temperature
is left out, never 0.

Times of leaf modules in place are one object: ns by the module's path.
"""

from __future__ import annotations

import json
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate, chain, groupby, repeat
from math import gcd
from typing import TypeVar, get_args

from opdb.errors import SamplesLeftOutError
from opdb.records import Before, CalibratedCall, Json, Neighbours, Stretch, canonical_json
from opdb.store import fields
from opdb.store.fields import COLLATED, Field

# packing

MOST_BYTES = 64 * 1024 * 1024
"""The longest JSON that is unpacked: a short text could claim to hold gigabytes."""


def pack(document: Json) -> str:
    """Return a JSON value's short text."""
    compressed = zlib.compress(canonical_json(document).encode(), 9)
    return b2a_base64(compressed, newline=False).decode()


def unpack(text: str) -> Json:
    """Read a JSON value from its short text.

    Raises:
        ValueError: the text is damaged, cut off, or holds too much.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(a2b_base64(text, strict_mode=True), MOST_BYTES)
    except (Base64Error, zlib.error, ValueError) as error:
        raise ValueError(f"damaged: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("damaged: cut off, or more than it may hold")
    return json.loads(found.decode())  # told that it is UTF-8, it looks no further


# stretches

ENCODING = 3

MOST_CLOCKS = 1_000_000
"""The most clock samples of one stretch: a few runs of them could claim any number."""

MOST_NS = 10**18
"""Times of layers are below it, some thirty years; JSON has numbers that no float holds."""


def encode_stretch(stretch: Stretch) -> str:
    """Return the text of a stretch."""
    return pack(stretch_document(stretch))


def decode_stretch(text: str) -> Stretch:
    """Read a stretch back.

    Raises:
        ValueError: the text is not a stretch in the encoding that this version reads.
    """
    return stretch_from_document(unpack(text))


def encode_stretches(stretches: Iterable[Stretch]) -> str:
    """Return one text of several stretches."""
    return pack([stretch_document(stretch) for stretch in stretches])


def decode_stretches(text: str) -> tuple[Stretch, ...]:
    """Read several stretches back.

    Raises:
        ValueError: the text is not a list of stretches in the encoding that this version reads.
    """
    documents = unpack(text)
    if not isinstance(documents, list):
        raise ValueError("raw samples are not a list of stretches")
    return tuple(map(stretch_from_document, documents))


def stretch_document(stretch: Stretch) -> dict[str, Json]:
    """Return a stretch as integers, by the members named in this module's docstring."""
    document: dict[str, Json] = {
        "f": ENCODING,
        "n": stretch.calls_per_replay,
        "d": round(stretch.duration_s * 1e9),
        "b": round(stretch.busy_share * 1e6),
    }
    times = _integers(stretch.replay_times_s, 1e9)
    unit = _unit(times)
    clocks = groupby(_integers(stretch.clock_samples_hz, 1e-6))
    lists = {
        "t": _differences([time // unit for time in times]),
        "p": _interleave(
            _differences(_integers((t for t, _ in stretch.power_samples), 1e6)),
            _integers((w for _, w in stretch.power_samples), 1e3),
        ),
        "e": _interleave(
            _differences(_integers((t for t, _ in stretch.counter_edges), 1e6)),
            _differences(_integers((j for _, j in stretch.counter_edges), 1e6)),
        ),
        "c": [number for mhz, same in clocks for number in (mhz, len(list(same)))],
        "g": _integers(stretch.eager_times_s, 1e9),
    }
    document.update({name: values for name, values in lists.items() if values})
    if times:
        document["q"] = unit
    if stretch.temperature_c is not None:
        document["w"] = round(stretch.temperature_c * 10)
    if stretch.utilization is not None:
        document["u"] = round(stretch.utilization * 1e4)
    return document


def stretch_from_document(document: Json) -> Stretch:
    """Read a stretch from its integers.

    Raises:
        ValueError: not a stretch in the encoding that this version reads.
    """
    _check_document(document)
    power, edges = document.get("p", []), document.get("e", [])
    clocks, unit = document.get("c", []), document.get("q", 1)
    times = [time * unit for time in accumulate(document.get("t", []))]
    temperature, utilization = document.get("w"), document.get("u")
    return Stretch(
        calls_per_replay=document["n"],
        replay_times_s=_scaled(times, 1e9),
        duration_s=document["d"] / 1e9,
        busy_share=document["b"] / 1e6,
        power_samples=tuple(
            zip(_scaled(accumulate(power[::2]), 1e6), _scaled(power[1::2], 1e3), strict=True)
        ),
        counter_edges=tuple(
            zip(
                _scaled(accumulate(edges[::2]), 1e6),
                _scaled(accumulate(edges[1::2]), 1e6),
                strict=True,
            )
        ),
        clock_samples_hz=tuple(
            chain.from_iterable(
                repeat(megahertz * 1e6, count)
                for megahertz, count in zip(clocks[::2], clocks[1::2], strict=True)
            )
        ),
        temperature_c=None if temperature is None else temperature / 10,
        eager_times_s=_scaled(document.get("g", []), 1e9),
        utilization=None if utilization is None else utilization / 1e4,
    )


def _check_document(document: Json) -> None:
    """Check that a document is a stretch's.

    Raises:
        ValueError: it is not, or its encoding is another.
    """
    if not isinstance(document, dict):
        raise ValueError("raw samples are not an object")
    if document.get("f") != ENCODING:
        raise ValueError(
            f"raw samples in encoding {document.get('f')!r}; this version reads {ENCODING}"
        )
    for name in ("n", "d", "b"):
        if type(document.get(name)) is not int:
            raise ValueError(f"raw samples without a whole number {name!r}")
    for name in ("t", "p", "e", "c", "g"):
        _check_integers(document.get(name, []), name)
    if any(len(document.get(name, [])) % 2 for name in ("p", "e", "c")):
        raise ValueError("raw samples with a time that has no value, or a clock without its number")
    if not 0 <= sum(document.get("c", [])[1::2]) <= MOST_CLOCKS:
        raise ValueError("raw samples with an impossible number of clock samples")
    for name, words in (("w", "a temperature"), ("u", "a utilization"), ("q", "a unit")):
        if type(document.get(name, 0)) is not int:
            raise ValueError(f"raw samples with {words} that is not a whole number")


def encode_neighbours(neighbours: Neighbours) -> str:
    """Return calls, `n`, and event times with neighbours, `t`, and of these alone, `a`, as text.

    Times are given as those of a stretch are. `after` holds the same by what ran before each call;
    without such times there is no such member.
    """
    document = _neighbours_document(neighbours)
    if neighbours.after:
        document["after"] = {
            before: _neighbours_document(times) for before, times in neighbours.after.items()
        }
    return pack(document)


def _neighbours_document(neighbours: Neighbours) -> dict[str, Json]:
    times = _integers(neighbours.times_s, 1e9)
    alone = _integers(neighbours.alone_s, 1e9)
    unit = _unit([*times, *alone])
    return {
        "n": neighbours.calls,
        "q": unit,
        "t": _differences([time // unit for time in times]),
        "a": _differences([time // unit for time in alone]),
    }


def decode_neighbours(text: str) -> Neighbours:
    """Read the times of a call among neighbours back.

    Raises:
        ValueError: the text holds none.
    """
    document = unpack(text)
    after = document.pop("after", {}) if isinstance(document, dict) else {}
    if not isinstance(after, dict) or not set(after) <= set(get_args(Before)):
        raise ValueError("times among neighbours after something unknown")
    if after and not {"itself", "code"} <= set(after):
        raise ValueError("times among neighbours after others, and not after the call itself")
    found = {before: _neighbours_from_document(times) for before, times in after.items()}
    return replace(_neighbours_from_document(document), after=found)


def _neighbours_from_document(document: object) -> Neighbours:
    if not isinstance(document, dict) or sorted(document) != ["a", "n", "q", "t"]:
        raise ValueError("not the times of a call among neighbours")
    if type(document["n"]) is not int or document["n"] < 1:
        raise ValueError("times among neighbours without a number of calls")
    for name in ("a", "t"):
        _check_integers(document[name], name)
    unit = document["q"]
    if type(unit) is not int:
        raise ValueError("times among neighbours in a unit that is not a whole number")
    times, alone = (
        _scaled([time * unit for time in accumulate(document[name])], 1e9) for name in ("t", "a")
    )
    return Neighbours(document["n"], times, alone)


def encode_times(times_s: Iterable[float]) -> str:
    """Return host times as text: ns."""
    return pack(_integers(times_s, 1e9))


def decode_times(text: str) -> tuple[float, ...]:
    """Read host times back.

    Raises:
        ValueError: the text holds none.
    """
    times = unpack(text)
    _check_integers(times, "times")
    return _scaled(times, 1e9)


def encode_layers(times_s: Mapping[str, float]) -> str:
    """Return the times of leaf modules in place, by path, as text: ns."""
    return pack({path: round(time_s * 1e9) for path, time_s in times_s.items()})


def decode_layers(text: str) -> dict[str, float]:
    """Read the times of leaf modules back.

    Raises:
        ValueError: the text holds none.
    """
    times = unpack(text)
    if not isinstance(times, dict):
        raise ValueError("times of layers are not an object")
    if not set(map(type, times.values())) <= {int}:
        raise ValueError("times of layers are not whole numbers")
    if not all(0 <= time < MOST_NS for time in times.values()):
        raise ValueError("times of layers are negative, or beyond any time")
    return {path: time / 1e9 for path, time in times.items()}


def _check_integers(values: Json, name: str) -> None:
    """Check that a JSON value is a list of integers.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        raise ValueError(f"raw samples {name!r} are not a list of whole numbers")


def _integers(values: Iterable[float], scale: float) -> list[int]:
    """Return values times scale, rounded."""
    return [round(value * scale) for value in values]


def _scaled(values: Iterable[int], scale: float) -> tuple[float, ...]:
    """Return values divided by scale."""
    return tuple([value / scale for value in values])


def _unit(values: Iterable[int]) -> int:
    """Return the greatest common divisor of the values; 1 where all are 0."""
    return gcd(*values) or 1


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _interleave(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [value for pair in zip(first, second, strict=True) for value in pair]


# columns of raw samples

LEFT_OUT = "-"
"""The text in place of a visit's raw samples where they lie apart; see `opdb.store.sets`.

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


def _named(name: str, allowed: fields.Range, values: Iterable[float]) -> None:
    try:
        allowed.check_all(values)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def _check_stretch(found: Stretch) -> None:
    if not found.replay_times_s:
        raise ValueError("a stretch without a single time")
    _named("calls", fields.POSITIVE_COUNT, [found.calls_per_replay])
    _named("the duration", fields.DURATION_S, [found.duration_s])
    _named("the busy share", fields.POSITIVE_SHARE, [found.busy_share])
    _named("a time", fields.POSITIVE_S, found.replay_times_s)
    _named("an eager time", fields.DURATION_S, found.eager_times_s)
    _named("a clock", fields.CLOCK_HZ, found.clock_samples_hz)
    for name, allowed, samples in (
        ("a power", fields.POWER_W, found.power_samples),
        ("the counter", fields.ENERGY_J, found.counter_edges),
    ):
        if samples:
            moments, values = zip(*samples, strict=True)
            _named(f"{name}'s moment", fields.DURATION_S, moments)
            _named(name, allowed, values)
    if found.temperature_c is not None:
        _named("the temperature", fields.TEMPERATURE_C, [found.temperature_c])
    if found.utilization is not None:
        _named("the utilization", fields.SHARE, [found.utilization])


def _check_stretches(found: tuple[Stretch, ...]) -> None:
    for stretch in found:
        _check_stretch(stretch)


def _check_neighbours(found: Neighbours) -> None:
    if not found.times_s or len(found.times_s) != len(found.alone_s):
        raise ValueError("times among neighbours without as many of these alone")
    _named("a time", fields.POSITIVE_S, found.times_s)
    _named("a time of neighbours alone", fields.DURATION_S, found.alone_s)
    for times in found.after.values():
        _check_neighbours(times)


def _check_times(found: tuple[float, ...]) -> None:
    if not found:
        raise ValueError("a host visit without a single time")
    _named("a time", fields.DURATION_S, found)


def _check_layers(found: Mapping[str, float]) -> None:
    if not all(map(str.isprintable, found)):
        raise ValueError("a layer's name holds a control character")
    _named("a time", fields.DURATION_S, list(found.values()))


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
