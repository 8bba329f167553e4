"""What each field of a set's files must be: one check a column, one parser a type.

Raw samples have checks of their own, see `opdb.store.raw_columns`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table

from opdb.records import Access, Form, Mode, Outcome, Phase, Role, Weights
from opdb.store.rows import (
    read_calibration,
    read_definition,
    read_kernel_counts,
    read_meter_tests,
    read_operating_point,
)


def parser(table: Table, column: Column[Any]) -> Callable[[str], Any]:
    """Return the function that reads one column's fields."""
    check = _CHECKS.get(f"{table.name}.{column.name}") or _CHECKS.get(column.name)
    convert = _CONVERTERS.get(type(column.type), str)
    if column.foreign_keys:
        convert = str  # a reference is a number inside and a key in the file
    nullable = bool(column.nullable)

    if convert is str and check is None and nullable:
        return lambda field: field or None

    def parse(field: str) -> Any:
        if not field:
            if nullable:
                return None
            raise ValueError("a value is missing")
        value = convert(field)
        if check is not None:
            check(value)
        return value

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
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")


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
    "document": _object,
    "inputs": _object,
    "settings": _object,
    "environment": _object,
    "foreign_leaves": _object,
    "unsupported": _object,
    "cost.kernels": _not_negative,
    "layers": _object,
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
