"""The type of a column, declared once: in a database, in a set's file, and in a record.

A `Field` is what a column of `opdb.store.schema` is declared with. Those of plain values are here;
JSON documents are in `opdb.store.documents`, raw samples in `opdb.store.samples`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, types

from opdb.records import SLUG_ALLOWED, is_slug
from opdb.store.ranges import Range

COLLATED = types.Text().with_variant(types.Text(collation="C"), "postgresql")
"""Text in the order of its characters on every database, not in that of people's languages."""


@dataclass(frozen=True)
class Field:
    """The type of a column.

    `sql` is its type in a database. `parse` reads a field of a set's file, and `check` raises
    ValueError or TypeError for a value that may not be. `encode` turns what a record holds into
    what is stored, `decode` does the reverse; None: both are the same. `verify` raises ValueError
    for a decoded value that nothing could have measured.
    """

    sql: Any
    parse: Callable[[str], Any] = str
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


def parser(column: Column[Any]) -> Callable[[str], Any]:
    """Return the function that reads one column's fields in a set's file."""
    field, convert = field_of(column), _converter(column)
    check, nullable = field.check, bool(column.nullable)

    def parse(text: str) -> Any:
        if not text:
            if nullable:
                return None
            if field.may_be_empty:
                return text
            raise ValueError("a value is missing")
        value = convert(text)
        if convert is str:
            _printable(value)
        if check is not None:
            check(value)
        return value

    return parse


def _converter(column: Column[Any]) -> Callable[[str], Any]:
    # A reference is a number inside and a key in the file.
    return str if column.foreign_keys else field_of(column).parse


def _printable(text: str) -> None:
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


AllAtOnce: TypeAlias = Callable[[Sequence[str]], Sequence[Any]]
"""Reads a whole column; raises ValueError where a field does not hold what it should."""


def column_parser(column: Column[Any]) -> AllAtOnce | None:
    """Return the function that reads a column as its `parser` does; None where it is no quicker.

    Numbers and texts without a check are mostly new in every row.
    """
    field, convert = field_of(column), _converter(column)
    check = field.check
    if field.may_be_empty:
        return None
    allowed = getattr(check, "__self__", None)
    if isinstance(allowed, Range) and convert is _finite:
        return _in_range(allowed, _numbers_or_none if column.nullable else _numbers)
    if check is not None:
        return None
    if convert is str:
        return _texts_or_none if column.nullable else _texts
    if convert is _finite:
        return _numbers_or_none if column.nullable else _numbers
    return None


def trusting_parser(column: Column[Any]) -> AllAtOnce | None:
    """Return the function that reads a column without checking what it reads; None as above.

    For sets that were checked before.
    """
    convert = _converter(column)
    if convert is str:
        return _texts_unchecked if column.nullable else list
    return _numbers_or_none if convert is _finite else None


def _texts_unchecked(found: Sequence[str]) -> Sequence[str | None]:
    return [field or None for field in found]


def _texts(found: Sequence[str]) -> Sequence[str]:
    if not all(found):
        raise ValueError("a value is missing")
    _all_plain(found)
    return found


def _texts_or_none(found: Sequence[str]) -> Sequence[str | None]:
    _all_plain(found)
    return [field or None for field in found]


def _all_plain(found: Sequence[str]) -> None:
    """Check that no text holds a control character, nor a backslash that may spell one.

    Raises:
        ValueError: one may.
    """
    together = "".join(found)
    if not together.isprintable() or "\\" in together:
        raise ValueError("a text to be looked at by itself")


def _numbers(found: Sequence[str]) -> Sequence[float]:
    numbers = list(map(float, found))
    _all_finite(numbers)
    return numbers


def _numbers_or_none(found: Sequence[str]) -> Sequence[float | None]:
    numbers = [float(field) if field else None for field in found]
    _all_finite(filter(None, numbers))
    return numbers


def _all_finite(numbers: Iterable[float]) -> None:
    """Check that numbers are finite: where one is not, their sum is not.

    Raises:
        ValueError: one is not, or their sum is beyond any number.
    """
    if not math.isfinite(sum(numbers)):
        raise ValueError("not a finite number")


def _in_range(allowed: Range, read: AllAtOnce) -> AllAtOnce:
    def parse(found: Sequence[str]) -> Sequence[float | None]:
        numbers = read(found)
        allowed.check_all([number for number in numbers if number is not None])
        return numbers

    return parse


def _whole(field: str) -> int:
    value = int(field)
    if not -(2**63) <= value < 2**63:
        raise ValueError("too large")
    return value


def _finite(field: str) -> float:
    value = float(field)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def _truth(field: str) -> bool:
    if field not in ("0", "1"):
        raise ValueError("not 0 or 1")
    return field == "1"


def _slug(text: str) -> None:
    if not is_slug(text):
        raise ValueError(f"a device may be named by {SLUG_ALLOWED}")


TEXT = Field(COLLATED)
TEXT_OR_EMPTY = Field(COLLATED, may_be_empty=True)
SLUG = Field(COLLATED, check=_slug)
WHOLE = Field(Integer, _whole)
BYTES = Field(BigInteger, _whole)
NUMBER = Field(Float, _finite)
TRUTH = Field(Boolean, _truth)


def within(allowed: Range, of: Field = NUMBER) -> Field:
    """Return the field of a number in a range."""
    return Field(of.sql, of.parse, allowed.check)


def one_of(words: Any) -> Field:
    """Return the field of one of the words of a Literal type."""
    allowed = get_args(words)

    def check(value: str) -> None:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")

    return Field(COLLATED, check=check)
