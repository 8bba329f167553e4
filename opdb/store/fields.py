"""What each field of a set's files must be: one check a column, one parser a type.

Raw samples have checks of their own, see `opdb.store.raw_columns`.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeAlias, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table

from opdb.records import Access, Form, Mode, Outcome, Outputs, Phase, Role, Weights
from opdb.store.rows import (
    read_calibration,
    read_definition,
    read_kernel_counts,
    read_meter_tests,
    read_operating_point,
)


def parser(table: Table, column: Column[Any]) -> Callable[[str], Any]:
    """Return the function that reads one column's fields."""
    check, convert = _check_of(table, column), _converter(column)
    nullable = bool(column.nullable)
    may_be_empty = f"{table.name}.{column.name}" in _MAY_BE_EMPTY

    def parse(field: str) -> Any:
        if not field:
            if nullable:
                return None
            if may_be_empty:
                return field
            raise ValueError("a value is missing")
        value = convert(field)
        if check is not None:
            check(value)
        return value

    return parse


def _check_of(table: Table, column: Column[Any]) -> Callable[[Any], None] | None:
    return _CHECKS.get(f"{table.name}.{column.name}") or _CHECKS.get(column.name)


def _converter(column: Column[Any]) -> Callable[[str], Any]:
    if column.foreign_keys:
        return str  # a reference is a number inside and a key in the file
    return _CONVERTERS.get(type(column.type), str)


AllAtOnce: TypeAlias = Callable[[Sequence[str]], Sequence[Any]]
"""Reads a whole column; raises ValueError where a field does not hold what it should."""


def column_parser(table: Table, column: Column[Any]) -> AllAtOnce | None:
    """Return the function that reads a column as its `parser` does; None where it is no quicker.

    Numbers and texts that nothing is checked of are mostly new in every row.
    """
    check, convert = _check_of(table, column), _converter(column)
    if f"{table.name}.{column.name}" in _MAY_BE_EMPTY:
        return None
    if check is _not_negative and convert is _finite and not column.nullable:
        return _numbers_not_negative
    if check is not None:
        return None
    if convert is str:
        return _texts_or_none if column.nullable else _texts
    if convert is _finite:
        return _numbers_or_none if column.nullable else _numbers
    return None


def _texts(found: Sequence[str]) -> Sequence[str]:
    if not all(found):
        raise ValueError("a value is missing")
    return found


def _texts_or_none(found: Sequence[str]) -> Sequence[str | None]:
    return [field or None for field in found]


def _numbers(found: Sequence[str]) -> Sequence[float]:
    numbers = list(map(float, found))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("not a finite number")
    return numbers


def _numbers_not_negative(found: Sequence[str]) -> Sequence[float]:
    numbers = _numbers(found)
    _not_negative(min(numbers, default=0.0))
    return numbers


def _numbers_or_none(found: Sequence[str]) -> Sequence[float | None]:
    numbers = [float(field) if field else None for field in found]
    if not all(map(math.isfinite, filter(None, numbers))):
        raise ValueError("not a finite number")
    return numbers


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


_CONVERTERS: dict[type, Callable[[str], Any]] = {
    Integer: _whole,
    BigInteger: _whole,
    Float: _finite,
    Boolean: _truth,
}


def _one_of(*allowed: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")

    return check


def _object(text: str) -> None:
    if len(text) > _LONG and _is_object(text):
        return
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")


_LONG = 10_000
"""Characters of JSON from which SQLite checks it sooner than Python reads all that it holds."""


def _is_object(text: str) -> bool:
    """Whether SQLite says that a text is a JSON object; it knows no NaN, which Python reads."""
    with closing(sqlite3.connect(":memory:")) as checker:
        valid = checker.execute("SELECT json_valid(?)", (text,)).fetchone()[0]
    return bool(valid) and text.startswith("{")


def _words(text: str) -> None:
    words = json.loads(text)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("not a JSON list of strings")


def _calibration(text: str) -> None:
    read_calibration(text)


def _operating_point(text: str) -> None:
    read_operating_point(text)


def _meter_tests(text: str) -> None:
    read_meter_tests(text)


def _not_negative(value: float) -> None:
    if value < 0:
        raise ValueError("negative")


def _definition(text: str) -> None:
    read_definition(text)


def _kernel_counts(text: str) -> None:
    read_kernel_counts(text)


_MAY_BE_EMPTY = frozenset(["workload.source_version"])
"""Columns of text that are not null and may hold none: a model of one's own has no version."""

_CHECKS: dict[str, Callable[[Any], None]] = {
    "device.type": _one_of("cuda", "cpu"),
    "role": _one_of(*get_args(Role)),
    "outcome": _one_of(*get_args(Outcome)),
    "form": _one_of(*get_args(Form)),
    "mode": _one_of(*get_args(Mode)),
    "phase": _one_of(*get_args(Phase)),
    "issue": _one_of("graph", "eager"),
    "weights": _one_of(*get_args(Weights)),
    "access": _one_of(*get_args(Access)),
    "visit.outputs": _one_of(*get_args(Outputs)),
    "document": _object,
    "inputs": _object,
    "settings": _object,
    "environment": _object,
    "foreign_leaves": _object,
    "unsupported": _object,
    "cost.kernels": _not_negative,
    "reasons": _object,
    "host_time_s": _object,
    "limited": _operating_point,
    "hot": _operating_point,
    "facts": _object,
    "model_run.setting": _object,
    "tests": _meter_tests,
    "definition": _definition,
    "counts": _kernel_counts,
    "notes": _words,
    "calibration": _calibration,
    "flags": _words,
    "cost_s": _not_negative,
    "position": _not_negative,
}
"""What a column's value must be, by `table.column` or by the column's name."""
