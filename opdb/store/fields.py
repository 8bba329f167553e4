"""The type of a column, declared once: in a database, in a stranger's set, and in a record.

A `Field` is what a column of `opdb.store.schema` is declared with. Those of plain values are here;
JSON documents are in `opdb.store.documents`, raw samples in `opdb.store.samples`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, types

from opdb.records import SLUG_ALLOWED, is_slug
from opdb.store.ranges import Range

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
