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
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, groupby, repeat
from math import gcd
from typing import Any, get_args

from opdb.errors import SamplesLeftOutError
from opdb.records import Before, HostVisit, Json, Neighbours, Stretch, canonical_json
from opdb.store.fields import (
    COLLATED,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    TEMPERATURE_C,
    Field,
)

# packing

MOST_BYTES = 64 * 1024 * 1024
"""The longest JSON that is unpacked: a short text could claim to hold gigabytes."""


def _refuse(number: str) -> None:
    raise ValueError(f"raw samples hold whole numbers, not {number}")


_WHOLE_NUMBERS = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)


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
    return _WHOLE_NUMBERS.decode(found.decode())


# stretches

ENCODING = 3

MOST_CLOCKS = 1_000_000
"""The most clock samples of one stretch: a few runs of them could claim any number."""


def stretch_document(stretch: Stretch) -> dict[str, Json]:
    """Return a stretch as integers, by the members named in this module's docstring."""
    times = _integers(stretch.replay_times_s, 1e9)
    unit = gcd(*times) or 1
    clocks = groupby(_integers(stretch.clock_samples_hz, 1e-6))
    power, edges = stretch.power_samples, stretch.counter_edges
    celsius, utilization = stretch.temperature_c, stretch.utilization
    document: dict[str, Json] = {
        "t": _differences([time // unit for time in times]),
        "p": _interleave(
            _differences(_integers((t for t, _ in power), 1e6)),
            _integers((w for _, w in power), 1e3),
        ),
        "e": _interleave(
            _differences(_integers((t for t, _ in edges), 1e6)),
            _differences(_integers((j for _, j in edges), 1e6)),
        ),
        "c": [number for mhz, same in clocks for number in (mhz, len(list(same)))],
        "g": _integers(stretch.eager_times_s, 1e9),
        "q": unit if times else None,
        "w": None if celsius is None else round(celsius * 10),
        "u": None if utilization is None else round(utilization * 1e4),
    }
    return {
        "f": ENCODING,
        "n": stretch.calls_per_replay,
        "d": round(stretch.duration_s * 1e9),
        "b": round(stretch.busy_share * 1e6),
        **{name: value for name, value in document.items() if value not in ([], None)},
    }


def stretch_from_document(document: Json) -> Stretch:
    """Read a stretch from its integers.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: not one in the encoding of this version.
    """
    if document.get("f") != ENCODING:
        raise ValueError(
            f"raw samples in encoding {document.get('f')!r}; this version reads {ENCODING}"
        )
    power, edges, clocks = (document.get(name, []) for name in ("p", "e", "c"))
    if not 0 <= sum(clocks[1::2]) <= MOST_CLOCKS:
        raise ValueError("raw samples with an impossible number of clock samples")
    temperature, utilization = document.get("w"), document.get("u")
    return Stretch(
        calls_per_replay=document["n"],
        replay_times_s=_times(document.get("t", []), document.get("q", 1)),
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


# other samples


def _neighbours_document(neighbours: Neighbours) -> dict[str, Json]:
    """Return calls, `n`, and event times with neighbours, `t`, and of these alone, `a`.

    Times are given as those of a stretch are. `after` holds the same by what ran before each call;
    without such times there is no such member.
    """
    times = _integers(neighbours.times_s, 1e9)
    alone = _integers(neighbours.alone_s, 1e9)
    unit = gcd(*times, *alone) or 1
    document: dict[str, Json] = {
        "n": neighbours.calls,
        "q": unit,
        "t": _differences([time // unit for time in times]),
        "a": _differences([time // unit for time in alone]),
    }
    if neighbours.after:
        after = {before: _neighbours_document(each) for before, each in neighbours.after.items()}
        document["after"] = after
    return document


def _neighbours_from_document(document: Json) -> Neighbours:
    after = {name: _neighbours_from_document(d) for name, d in document.get("after", {}).items()}
    if after and not {"itself", "code"} <= after.keys() <= set(get_args(Before)):
        raise ValueError("times among neighbours after something unknown, or not after the call")
    times, alone = (_times(document[name], document["q"]) for name in ("t", "a"))
    return Neighbours(document["n"], times, alone, after)


def _times(differences: Iterable[int], unit: int) -> tuple[float, ...]:
    return _scaled([time * unit for time in accumulate(differences)], 1e9)


def _integers(values: Iterable[float], scale: float) -> list[int]:
    """Return values times scale, rounded."""
    return [round(value * scale) for value in values]


def _scaled(values: Iterable[int], scale: float) -> tuple[float, ...]:
    """Return values divided by scale."""
    return tuple([value / scale for value in values])


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
    """Return the number of blocks of host times, which may lie apart."""
    return int(text.removeprefix(LEFT_OUT)) if are_left_out(text) else len(unpack(text))


STRETCH_RANGES = {
    "calls_per_replay": POSITIVE,
    "replay_times_s": POSITIVE,
    "duration_s": NOT_NEGATIVE,
    "busy_share": POSITIVE_SHARE,
    "power_samples": NOT_NEGATIVE,
    "counter_edges": NOT_NEGATIVE,
    "clock_samples_hz": NOT_NEGATIVE,
    "temperature_c": TEMPERATURE_C,
    "eager_times_s": NOT_NEGATIVE,
    "utilization": SHARE,
}
"""What the samples of a stretch may be, their moments as they themselves."""


def _verify_stretch(found: Stretch) -> None:
    if not found.replay_times_s:
        raise ValueError("a stretch without a single time")
    for name, allowed in STRETCH_RANGES.items():
        value = getattr(found, name)
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        if name in ("power_samples", "counter_edges"):
            values = tuple(chain(*values))
        try:
            allowed.check(*values)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error


def _verify_neighbours(found: Neighbours) -> None:
    if not found.times_s or len(found.times_s) != len(found.alone_s):
        raise ValueError("times among neighbours without as many of these alone")
    POSITIVE.check(found.calls, *found.times_s)
    NOT_NEGATIVE.check(*found.alone_s)
    for times in found.after.values():
        _verify_neighbours(times)


def _verify_times(found: tuple[float, ...]) -> None:
    if not found:
        raise ValueError("a host visit without a single time")
    NOT_NEGATIVE.check(*found)


def _samples(
    document: Callable[[Any], Json], read: Callable[[Json], Any], verify: Callable[[Any], object]
) -> Field:
    """Return the field of samples that are packed as a JSON document.

    Where they lie apart, reading them raises SamplesLeftOutError.
    """

    def decode(text: str) -> Any:
        if are_left_out(text):
            raise SamplesLeftOutError
        return read(unpack(text))

    return Field(COLLATED, encode=lambda value: pack(document(value)), decode=decode, verify=verify)


STRETCH = _samples(stretch_document, stretch_from_document, _verify_stretch)
STRETCHES = _samples(
    lambda found: list(map(stretch_document, found)),
    lambda documents: tuple(map(stretch_from_document, documents)),
    lambda found: list(map(_verify_stretch, found)),
)
NEIGHBOURS = _samples(_neighbours_document, _neighbours_from_document, _verify_neighbours)
TIMES = _samples(lambda s: _integers(s, 1e9), lambda ns: _scaled(ns, 1e9), _verify_times)
LAYERS = _samples(
    lambda times: {path: round(time_s * 1e9) for path, time_s in times.items()},
    lambda times: {path: time / 1e9 for path, time in times.items()},
    lambda found: NOT_NEGATIVE.check(*found.values()),
)
HOST_CALLS = Field(
    COLLATED,
    encode=lambda calls: canonical_json(
        [
            {
                "configuration": each.configuration,
                "form": each.form,
                "started_at": each.started_at,
                "times_s": TIMES.encode(each.times_s),
            }
            for each in calls
        ]
    ),
    decode=lambda text: tuple(
        HostVisit("", "", **{**each, "times_s": TIMES.decode(each["times_s"])})
        for each in json.loads(text)
    ),
)
