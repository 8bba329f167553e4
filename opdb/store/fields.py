"""The type of a column, declared once: in a database, in a stranger's set, and in a record.

A `Field` is what a column of `opdb.store.schema` is declared with: a plain value, a JSON document,
or raw samples.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import accumulate, chain, groupby, repeat
from math import gcd
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, types

from opdb.errors import SamplesLeftOutError
from opdb.records import (
    AfterOthers,
    Before,
    Calibration,
    Configuration,
    Form,
    Json,
    KernelCounts,
    MeterTest,
    Neighbours,
    OperatingPoint,
    PassMemory,
    Quantity,
    RunRatio,
    Stretch,
    canonical_json,
)


@dataclass(frozen=True)
class Range:
    """The range of a quantity, both ends included unless it has to be positive."""

    low: float
    high: float
    positive: bool = False

    def check(self, *values: float) -> None:
        """Check numbers.

        Raises:
            ValueError: one lies outside, or is not finite.
        """
        for value in (min(values), max(values)) if values else ():
            if not self.low <= value <= self.high or (self.positive and value == 0):
                raise ValueError(f"out of range; allowed: {self}")

    def __str__(self) -> str:
        return f"{'more than' if self.positive else 'from'} {self.low:g} to {self.high:g}"


NOT_NEGATIVE = Range(0, 1e18)
"""Quantities in SI units, and counts: far beyond what devices reach."""

POSITIVE = Range(0, 1e18, positive=True)
SHARE = Range(0, 1.01)
POSITIVE_SHARE = Range(0, 1.01, positive=True)
TEMPERATURE_C = Range(-200, 1000)


COLLATED = types.Text().with_variant(types.Text(collation="C"), "postgresql")
"""Text in the order of its characters on every database, not in that of people's languages."""

_HELD: dict[Any, tuple[tuple[type, ...], str]] = {
    Integer: ((int,), "a whole number"),
    BigInteger: ((int,), "a whole number"),
    Float: ((int, float), "a number"),
    Boolean: ((bool,), "true or false"),
}
"""What values of a type are in Python; all others are texts. SQLite itself holds any type."""


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """The type of a column.

    `sql` is its type in a database; `check` raises ValueError or TypeError for a value that may not
    be. `encode` turns what a record holds into what is stored, `decode` does the reverse. `verify`
    raises ValueError for decoded raw samples that nothing could have measured.
    """

    sql: Any
    check: Callable[[Any], object] | None = None
    encode: Callable[[Any], Any] = same
    decode: Callable[[Any], Any] = same
    verify: Callable[[Any], object] | None = None


def column(name: str, field: Field, *constraints: Any, **options: Any) -> Column[Any]:
    """Return a column that holds a field; not null unless `nullable` says so."""
    options = {"nullable": False, **options}
    return Column(name, field.sql, *constraints, info={"field": field}, **options)


def field_of(held_in: Column[Any]) -> Field:
    field: Field = held_in.info["field"]
    return field


def is_number(column: Column[Any]) -> bool:
    """Return whether a column holds numbers, of records and not of the rows of another table."""
    return field_of(column).sql in (Integer, BigInteger, Float) and not column.foreign_keys


def check_value(column: Column[Any], value: Any) -> None:
    """Check a value of a stranger's row.

    Raises:
        ValueError, TypeError, LookupError, ArithmeticError: the column may not hold it.
    """
    field = field_of(column)
    if value is None:
        if not column.nullable:
            raise ValueError("a value is missing")
        return
    held, called = _HELD.get(field.sql, ((str,), "a text"))
    if type(value) not in held:
        raise TypeError(f"not {called}")
    if not isinstance(value, str) and not math.isfinite(value):
        raise ValueError("not a finite number")
    if field.check is not None:
        field.check(value)
    found = field.decode(value)
    if field.verify is not None:
        field.verify(found)


def _check_slug(text: str) -> None:
    """Check that a text may name a device: it also stands in the names of files."""
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", text) is None:
        raise ValueError(
            "a device may be named by lower-case letters, digits, '-', '.' and '_', 100 at most, "
            "a letter or digit first"
        )


TEXT = Field(COLLATED)
CONFIGURATION = Field(COLLATED, decode=Configuration.from_json)
SLUG = Field(COLLATED, check=_check_slug)
WHOLE = Field(Integer)
BYTES = Field(BigInteger)
NUMBER = Field(Float)
TRUTH = Field(Boolean)


def within(allowed: Range, of: Field = NUMBER) -> Field:
    return replace(of, check=allowed.check)


def one_of(words: Any) -> Field:
    """Return the field of one of the words of a Literal type."""
    allowed = get_args(words)

    def check(value: str) -> None:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")

    return Field(COLLATED, check=check)


_PLAIN: Mapping[Any, tuple[type, ...]] = {
    float: (float, int),
    int: (int,),
    str: (str,),
    bool: (bool,),
}
"""What a value of a type is as JSON."""

_AS_LISTS = (KernelCounts, RunRatio)
"""The records that are the list of their attributes as JSON; all others are objects."""


def read_json(text: str) -> Json:
    # Most columns say nothing most of the time.
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)


def _read_object(text: str) -> dict[str, Json]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:80]!r}")
    return found


def _as_json(value: Any) -> Json:
    if is_dataclass(value):
        parts = _as_json(vars(value))
        return list(parts.values()) if isinstance(value, _AS_LISTS) else parts
    if isinstance(value, Mapping):
        return {name: _as_json(each) for name, each in value.items()}
    return list(map(_as_json, value)) if isinstance(value, tuple) else value


def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what reads a JSON value as a type: a record, a tuple, a mapping by text, or plain.

    It raises ValueError, TypeError or KeyError for a value that is none. Numbers are finite, and
    whole ones count something.
    """
    origin, given = get_origin(kind), get_args(kind)
    if NoneType in given:
        read = _reader(given[0])
        return lambda value: None if value is None else read(value)
    if is_dataclass(kind) and isinstance(kind, type):
        readers = {name: _reader(each) for name, each in get_type_hints(kind).items()}

        def read_record(value: Json) -> Any:
            parts = dict(zip(readers, value, strict=True)) if type(value) is list else value
            return kind(**{name: readers[name](each) for name, each in parts.items()})

        return read_record
    if origin is tuple:
        read, length = _reader(given[0]), None if given[-1] is ... else len(given)

        def read_tuple(value: Json) -> Any:
            if type(value) is not list or length not in (None, len(value)):
                raise TypeError(f"expected a list, got {value!r}")
            return tuple(map(read, value))

        return read_tuple
    if given:
        read = _reader(given[1])
        return lambda value: {name: read(each) for name, each in value.items()}

    def read_plain(value: Json) -> Any:
        right = type(value) in _PLAIN[kind]
        if not right or (kind in (int, float) and not -math.inf < value < math.inf):
            raise TypeError(f"expected {kind.__name__}, got {value!r}")
        if kind is int and not 0 <= value < 2**63:
            raise ValueError(f"expected a whole number that counts something, got {value}")
        return value

    return read_plain


def _document(
    kind: Any,
    check: Callable[[str], object] | None = None,
    as_json: Callable[[Any], Json] = _as_json,
) -> Field:
    """Return the field of a document of a type; `as_json` makes its JSON."""
    read = _reader(kind)
    return Field(
        COLLATED,
        check=check,
        encode=lambda value: canonical_json(as_json(value)),
        decode=lambda text: read(read_json(text)),
    )


def _as_json_of_memory(memory: PassMemory) -> Json:
    return {name: size for name, size in vars(memory).items() if size is not None}


def _check_ratios(text: str) -> None:
    modes = RUN_RATIOS.decode(text).values()
    boards = [of_board for of_mode in modes for of_board in of_mode.values()]
    for shown in (each for of_board in boards for each in of_board.values() if each is not None):
        numbers = (shown.time, shown.energy, shown.kernel_s)
        if any(each is not None and each <= 0 for each in numbers):
            raise ValueError(f"a ratio of {shown} is not above 0")


OBJECT = Field(COLLATED, encode=lambda value: canonical_json(_as_json(value)), decode=_read_object)
WORDS = _document(tuple[str, ...])
KERNELS = _document(Mapping[str, int])

MEMORY = _document(PassMemory, as_json=_as_json_of_memory)
CALIBRATION = _document(Calibration)
METER_TESTS = _document(tuple[MeterTest, ...])
FACTS = _document(Mapping[str, float | None])
DEFINITION = _document(Mapping[str, Mapping[str, float]])
KERNEL_COUNTS = _document(tuple[KernelCounts, ...])
OPERATING_POINT = _document(OperatingPoint)
AFTER_OTHERS = _document(AfterOthers)
HOST_TIMES = _document(Mapping[Form, Quantity])
RUN_RATIOS = _document(Mapping[str, Mapping[str, Mapping[str, RunRatio | None]]], _check_ratios)


# raw samples
#
# One compact text: JSON of integers, packed.
#
# `json.loads(zlib.decompress(base64.b64decode(text)))` reads it. A stretch is an object with these
# members; those that hold nothing are left out:
#
# | member | holds |
# |---|---|
# | `f` | the encoding's number, 3 |
# | `n` | calls per replay |
# | `d` | duration, ns |
# | `b` | busy share, millionths |
# | `q` | the unit of `t`, ns |
# | `t` | event times of the replays in that unit: the first, then each less the one before |
# | `u` | utilization, ten-thousandths |
# | `p` | power samples: µs since the sample before (the first: since the stretch began), mW, … |
# | `e` | counter edges: µs since the edge before, µJ since the edge before, … |
# | `c` | clock samples as runs: MHz, how many, … |
# | `g` | eager event times of single calls, ns |
# | `w` | temperature, tenths of a degree Celsius |
#
# `q` is the largest unit that leaves all times whole: the events of an H200 tick every 32 ns, and
# times above 0.1 s, which their type rounds more coarsely, have the unit 1. Reading back gives each
# value to within half its unit; encoding what was read gives the same text. A missing temperature
# is left out, never 0.
#
# Times of leaf modules in place are one object: ns by the module's path.

MOST_BYTES = 64 * 1024 * 1024
"""The longest JSON that is unpacked: a short text could claim to hold gigabytes."""


def _refuse(number: str) -> None:
    raise ValueError(f"raw samples hold whole numbers, not {number}")


_WHOLE_NUMBERS = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)


def pack(document: Json) -> str:
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


ENCODING = 3

MOST_CLOCKS = 1_000_000
"""The most clock samples of one stretch: a few runs of them could claim any number."""


def stretch_document(stretch: Stretch) -> dict[str, Json]:
    """Return a stretch as integers, by the members named above."""
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
    return [round(value * scale) for value in values]


def _scaled(values: Iterable[int], scale: float) -> tuple[float, ...]:
    return tuple([value / scale for value in values])


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _interleave(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [value for pair in zip(first, second, strict=True) for value in pair]


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
