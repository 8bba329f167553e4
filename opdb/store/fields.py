"""The type of a column, declared once: in a database, in a stranger's set, and in a record.

A `Field` is what a column of `opdb.store.schema` is declared with: plain values and
JSON documents here, raw samples in `opdb.store.raw`. Numbers have ranges beyond which they are a
mistake or a lie.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, types

from opdb.records import (
    SLUG_ALLOWED,
    AfterOthers,
    Calibration,
    Json,
    KernelCounts,
    MeterTest,
    OperatingPoint,
    PassMemory,
    Quantity,
    RunRatio,
    RunRatios,
    canonical_json,
    is_slug,
)

# ranges of physical quantities
#
# They are wide: a thousand times what devices of today reach.


@dataclass(frozen=True)
class Range:
    """The range of a quantity, both ends included unless it has to be positive."""

    low: float
    high: float
    positive: bool = False

    def check(self, value: float) -> None:
        """Check a number.

        Raises:
            ValueError: it lies outside, or is not finite.
        """
        inside = self.low <= value <= self.high and not (self.positive and value == 0)
        if not inside or not math.isfinite(value):
            raise ValueError(f"out of range; allowed: {self}")

    def check_all(self, values: Iterable[float]) -> None:
        """Check numbers by their smallest and largest.

        Raises:
            ValueError: one lies outside, or is not finite.
        """
        some = values if isinstance(values, list | tuple) else list(values)
        if some:
            self.check(min(some))
            self.check(max(some))

    def __str__(self) -> str:
        if self.positive:
            return f"more than 0, {self.high:g} at most"
        return f"{self.low:g} to {self.high:g}"


DURATION_S = Range(0, 1e8)
"""Seconds of anything: three years."""

POSITIVE_S = Range(0, 1e8, positive=True)
POWER_W = Range(0, 1e6)
POSITIVE_W = Range(0, 1e6, positive=True)
ENERGY_J = Range(0, 1e12)
CLOCK_HZ = Range(0, 1e12)
POSITIVE_HZ = Range(0, 1e12, positive=True)
POSITIVE_BYTES = Range(0, 1e18, positive=True)
COUNT = Range(0, 1e12)
POSITIVE_COUNT = Range(1, 1e12)

DIFFERENCE_S = Range(-1e8, 1e8)
"""Seconds that are a difference of two measurements: below 0 where the call is less than noise."""

DIFFERENCE_W = Range(-1e6, 1e6)
DIFFERENCE_J = Range(-1e12, 1e12)
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


@dataclass(frozen=True)
class Field:
    """The type of a column.

    `sql` is its type in a database; `check` raises ValueError or TypeError for a value that may not
    be. `encode` turns what a record holds into what is stored, `decode` does the reverse; None:
    both are the same. `verify` raises ValueError for a decoded value that nothing could have
    measured.
    """

    sql: Any
    check: Callable[[Any], object] | None = None
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    verify: Callable[[Any], None] | None = None
    may_be_empty: bool = False

    def checked(self, text: str | None) -> Any:
        """Return the raw samples that a text holds, None of None.

        Raises:
            ValueError: it cannot be read, or holds what nothing could have measured.
        """
        if text is None:
            return None
        assert self.decode is not None and self.verify is not None
        found = self.decode(text)
        self.verify(found)
        return found


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
    """Check a value of a stranger's row; a reference is given as the key of what it refers to.

    Raises:
        ValueError, TypeError: the column may not hold it.
    """
    field = field_of(column)
    if value is None:
        if not column.nullable:
            raise ValueError("a value is missing")
        return
    held, called = _HELD.get(None if column.foreign_keys else field.sql, ((str,), "a text"))
    if type(value) not in held:
        raise TypeError(f"not {called}")
    if isinstance(value, str):
        if not value and not field.may_be_empty:
            raise ValueError("a value is missing")
        _check_printable(value)
    elif not math.isfinite(value):
        raise ValueError("not a finite number")
    if field.check is not None:
        field.check(value)
    if field.verify is not None:
        field.checked(value)


def _check_printable(text: str) -> None:
    """Check that a text holds no control character, nor its JSON one that is spelled out.

    Raises:
        ValueError: it does, or its JSON is nested deeper than can be read.
    """
    if not text.isprintable():
        raise ValueError("a control character; allowed: what can be printed")
    if "\\" in text and text.startswith(("{", "[")):
        waiting = [json.loads(text)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                waiting += [*value, *value.values()]
            elif isinstance(value, list):
                waiting += value
            elif isinstance(value, str) and not value.isprintable():
                raise ValueError("a control character in its JSON; allowed: what can be printed")


def _check_slug(text: str) -> None:
    if not is_slug(text):
        raise ValueError(f"a device may be named by {SLUG_ALLOWED}")


TEXT = Field(COLLATED)
TEXT_OR_EMPTY = Field(COLLATED, may_be_empty=True)
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

_POINT = {field.name for field in fields(OperatingPoint)}
_AFTER = {field.name for field in fields(AfterOthers)}


def read_json(text: str) -> Json:
    """Read a JSON column."""
    # Most columns say nothing most of the time.
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)


def _read_object(text: str) -> dict[str, Json]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:80]!r}")
    return found


def _read_counts(text: str) -> dict[str, int]:
    found: dict[str, int] = _read_object(text)
    if not all(isinstance(count, int) for count in found.values()):
        raise TypeError(f"{text[:80]!r} holds something else than counts")
    return found


def quantity(name: str, parts: Mapping[str, Any]) -> Quantity:
    """Return a quantity of these parts.

    Raises:
        TypeError: one is not a number; the message names it.
    """
    for part, value in parts.items():
        if part in ("low", "high") and value is None:
            continue  # there is no interval
        if not isinstance(value, float | int):
            raise TypeError(f"{name}_{part} is {value!r}, no number")
    return Quantity(**parts)


def _document(
    decode: Callable[[str], Any],
    *,
    check: Callable[[str], object] | None = None,
    encode: Callable[[Any], Json] = asdict,
) -> Field:
    """Return the field of a document; `check` is `decode` unless given, `encode` makes its JSON."""
    return Field(
        COLLATED,
        check=check or decode,
        encode=lambda value: canonical_json(encode(value)),
        decode=decode,
    )


def _read_words(text: str) -> tuple[str, ...]:
    words = read_json(text)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("not a JSON list of strings")
    return tuple(words)


def _read_memory(text: str) -> PassMemory:
    sizes = _read_object(text)
    for name, value in sizes.items():
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"{name} is {value!r}; expected a whole number of bytes")
    return PassMemory(**sizes)


def _read_calibration(text: str) -> Calibration:
    values = json.loads(text)
    base_w = values.get("base_power_w")
    if base_w is not None and not 0 <= base_w < math.inf:
        raise ValueError(f"base power of {base_w} W")
    interval = values.get("base_power_interval_w")
    values["base_power_interval_w"] = None if interval is None else tuple(interval)
    values["notes"] = tuple(values.get("notes", ()))
    return Calibration(**values)


def _read_meter_tests(text: str) -> tuple[MeterTest, ...]:
    return tuple(MeterTest(**test) for test in read_json(text))


def _read_definition(text: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = read_json(text)
    if not isinstance(found, dict):
        raise TypeError("not a mapping of quantities")
    for weights in found.values():
        _check_numbers(weights, nullable=False)
    return found


def _read_kernel_counts(text: str) -> tuple[KernelCounts, ...]:
    found = []
    for name, values in read_json(text):
        if not isinstance(name, str):
            raise TypeError("a kernel without a name")
        _check_numbers(values, nullable=True)
        found.append(KernelCounts(name, values))
    return tuple(found)


def _check_numbers(values: Json, *, nullable: bool) -> None:
    if not isinstance(values, dict):
        raise TypeError("not a mapping of metrics to numbers")
    for name, value in values.items():
        if value is None and nullable:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise TypeError(f"{name} is no number")


def _read_operating_point(text: str) -> OperatingPoint:
    document = read_json(text)
    if not isinstance(document, dict) or document.keys() != _POINT:
        raise ValueError(f"not an operating point: {text[:80]!r}")
    return OperatingPoint(**document)


def _read_after_others(text: str) -> AfterOthers:
    document = read_json(text)
    if not isinstance(document, dict) or document.keys() != _AFTER:
        raise ValueError(f"not what a call takes longer after others: {text[:80]!r}")
    DIFFERENCE_S.check(document["code_s"])
    if document["stream_s"] is not None:
        DIFFERENCE_S.check(document["stream_s"])
    return AfterOthers(**document)


def read_run_ratios(text: str) -> RunRatios:
    """Read what runs showed of sums."""
    return {
        mode: {
            board: {key: _run_ratio(shown) for key, shown in of_board.items()}
            for board, of_board in of_mode.items()
        }
        for mode, of_mode in _read_object(text).items()
    }


def _run_ratio(shown: Json) -> RunRatio | None:
    if shown is None:
        return None
    found = RunRatio(*shown)
    for name, value in (("time", found.time), ("energy", found.energy), ("kernel", found.kernel_s)):
        if value is None and name != "time":
            continue
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a number above 0")
    if not isinstance(found.waits, bool):
        raise TypeError(f"waits is {found.waits!r}; expected true or false")
    return found


def run_ratios_as_json(ratios: RunRatios) -> Json:
    """Return what runs showed of sums as a JSON value."""
    return {
        mode: {
            board: {key: shown and list(astuple(shown)) for key, shown in of_board.items()}
            for board, of_board in of_mode.items()
        }
        for mode, of_mode in ratios.items()
    }


def _read_host_times(text: str) -> dict[str, Quantity]:
    times = _read_object(text)
    return {form: quantity(f"host_time_s.{form}", parts) for form, parts in times.items()}


def _check_host_times(text: str) -> None:
    for form, found in _read_host_times(text).items():
        if type(found.count) is not int:
            raise TypeError(f"{form}: count is {found.count!r}, no whole number")
        POSITIVE_COUNT.check(found.count)
        for time_s in (found.median, found.mean, found.low, found.high):
            if time_s is not None:
                DURATION_S.check(time_s)


OBJECT = _document(_read_object, encode=dict)
WORDS = _document(_read_words, encode=list)
KERNELS = Field(COLLATED, check=_read_counts, encode=OBJECT.encode, decode=_read_counts)
"""Counts of kernels by name."""

MEMORY = _document(
    _read_memory,
    encode=lambda memory: {n: size for n, size in asdict(memory).items() if size is not None},
)
CALIBRATION = _document(_read_calibration)
METER_TESTS = _document(_read_meter_tests, encode=lambda tests: list(map(asdict, tests)))
DEFINITION = _document(
    _read_definition, encode=lambda found: {name: dict(each) for name, each in found.items()}
)
KERNEL_COUNTS = _document(
    _read_kernel_counts, encode=lambda found: [[each.name, dict(each.values)] for each in found]
)
OPERATING_POINT = _document(_read_operating_point)
AFTER_OTHERS = _document(_read_after_others)
HOST_TIMES = _document(
    _read_host_times,
    check=_check_host_times,
    encode=lambda times: {form: asdict(each) for form, each in times.items()},
)
RUN_RATIOS = _document(read_run_ratios, encode=run_ratios_as_json)
