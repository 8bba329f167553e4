"""The type of a column, declared once: in a database, in a stranger's set, and in a record.

A `Field` is what a column of `opdb.store.schema` is declared with: plain values and
JSON documents here, raw samples in `opdb.store.raw`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, types

from opdb.records import (
    SLUG_ALLOWED,
    AfterOthers,
    Calibration,
    Configuration,
    Form,
    Json,
    KernelCounts,
    MeterTest,
    OperatingPoint,
    PassMemory,
    Quantity,
    RunRatio,
    canonical_json,
    is_slug,
)

# ranges


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


# plain values

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
    """Return a value as it is."""
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
    """Return what a column was declared to hold."""
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
    if not is_slug(text):
        raise ValueError(f"a device may be named by {SLUG_ALLOWED}")


TEXT = Field(COLLATED)
CONFIGURATION = Field(COLLATED, decode=Configuration.from_json)
SLUG = Field(COLLATED, check=_check_slug)
WHOLE = Field(Integer)
BYTES = Field(BigInteger)
NUMBER = Field(Float)
TRUTH = Field(Boolean)


def within(allowed: Range, of: Field = NUMBER) -> Field:
    """Return the field of a number in a range."""
    return replace(of, check=allowed.check)


def one_of(words: Any) -> Field:
    """Return the field of one of the words of a Literal type."""
    allowed = get_args(words)

    def check(value: str) -> None:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")

    return Field(COLLATED, check=check)


# JSON documents

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
    """Read a JSON column."""
    # Most columns say nothing most of the time.
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)


def _read_object(text: str) -> dict[str, Json]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:80]!r}")
    return found


def _as_json(value: Any) -> Json:
    """Return records, and collections of them, as a JSON value."""
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
"""Counts of kernels by name."""

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
