"""A published set as files: one CSV file a table, content keys and UUIDs in place of row numbers.

A missing value is an empty field. Rows are in an order that later measurements append to, so that
two versions of a set differ in few lines. What is read is checked, field by field: a set may come
from a stranger.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table, Text

from opdb.errors import InputError
from opdb.records import Access, Form, Mode, Outcome, Phase, Role, Weights
from opdb.store import schema
from opdb.store.raw import (
    READ_ENCODINGS,
    check_integers,
    check_stretch,
    decode_neighbours,
    upgraded,
)
from opdb.store.rows import (
    NewRow,
    read_calibration,
    read_meter_tests,
    read_operating_point,
)

_FIELD_BYTES = 16 * 1024 * 1024  # a run of many repeats outgrows the csv module's 128 KiB

_READ = "".join(map(str, READ_ENCODINGS))
_INTEGERS = r"\[-?\d+(?:,-?\d+)*\]"
_PAIRS = r"\[-?\d+,-?\d+(?:,-?\d+,-?\d+)*\]"
_ONE_STRETCH = (
    rf'{{"b":\d+(?:,"c":{_INTEGERS})?,"d":\d+(?:,"e":{_PAIRS})?,"f":[{_READ}]'
    rf'(?:,"g":{_INTEGERS})?,"n":\d+(?:,"p":{_PAIRS})?(?:,"t":{_INTEGERS})?(?:,"u":\d+)?'
    r'(?:,"w":-?\d+)?}'
)
_STRETCH = re.compile(_ONE_STRETCH, re.ASCII)
_STRETCHES = re.compile(rf"\[{_ONE_STRETCH}(?:,{_ONE_STRETCH})*\]", re.ASCII)

RAW_COLUMNS = ("stretch", "restore", "repeats")
"""Columns of raw samples, written in this version's encoding whatever they were saved in."""

REFERENCES = {"configuration_id": "configuration", "workload_id": "workload"}
"""Columns that hold a row number inside, and the content key's column in a file."""


_INSIDE = ("id", "source_id", "touched_bytes")
"""Columns that say something of this database alone."""


@dataclass(frozen=True)
class SetFile:
    """One file of a set: the table it holds and the columns its rows are ordered by."""

    name: str
    table: Table
    order: tuple[str, ...]

    @property
    def columns(self) -> dict[str, Column[Any]]:
        """The table's columns by their names in the file, in order."""
        return {
            REFERENCES.get(column.name, column.name): column
            for column in self.table.columns
            if column.name not in _INSIDE or isinstance(column.type, Text)
        }


FILES = (
    SetFile("device.csv", schema.device, ("slug",)),
    SetFile("boards.csv", schema.board, ("uuid",)),
    SetFile("hosts.csv", schema.host, ("id",)),
    SetFile("campaigns.csv", schema.campaign, ("started_at", "id")),
    SetFile("configurations.csv", schema.configuration, ("kind", "key")),
    SetFile("workloads.csv", schema.workload, ("name", "phase", "dtype", "batch_size", "key")),
    SetFile("calls.csv", schema.call, ("workload", "position")),
    SetFile("calibrations.csv", schema.board_calibration, ("measured_at", "id")),
    SetFile("visits.csv", schema.visit, ("started_at", "id")),
    SetFile("host_visits.csv", schema.host_visit, ("started_at", "id")),
    SetFile("model_runs.csv", schema.model_run, ("started_at", "id")),
    SetFile("costs.csv", schema.cost, ("board", "configuration", "setting", "estimator")),
    SetFile("learned.csv", schema.learned, ("board",)),
)
"""The files of a set, each after those it refers to."""

LATER_FILES = ("calibrations.csv", "learned.csv")
"""Files that sets of older versions lack; they hold nothing then."""

LATER_COLUMNS = {
    "visit.access": "model",
    "visit.neighbours": "",
    "cost.hot": "",
    "model_run.setting": "{}",
    "model_run.facts": "{}",
}
"""Columns that sets of older versions lack, and the field that stands in for each."""


class Place(NamedTuple):
    """Where a row stands, for messages."""

    path: Path
    line: int

    def error(self, column: str, found: str, why: str) -> InputError:
        """Return the error of one field: file, line, column, what was found and why it fails."""
        shown = found if len(found) <= 80 else found[:77] + "..."
        return InputError(f"{self.path}, line {self.line}, column {column}: {shown!r}: {why}")


def write_file(file: SetFile, folder: Path, rows: Iterable[NewRow]) -> int:
    """Write one file of a set; return its number of rows."""
    columns = file.columns
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in file.order))
    with (folder / file.name).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        for row in ordered:
            writer.writerow([_text(_current(name, row[name])) for name in columns])
    return len(ordered)


def _current(name: str, value: Any) -> Any:
    """Return a value as this version writes it."""
    return upgraded(value) if name in RAW_COLUMNS else value


def read_file(file: SetFile, folder: Path) -> list[tuple[Place, NewRow]]:
    """Read one file of a set, each field checked and in its own type.

    Raises:
        InputError: it is missing, is not such a file, or a field does not hold what it should.
    """
    path = folder / file.name
    csv.field_size_limit(_FIELD_BYTES)
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return _read_rows(file, path, csv.reader(stream, strict=True))
    except FileNotFoundError as error:
        if file.name in LATER_FILES:
            return []
        raise InputError(f"{folder} is not a published set: {file.name} is missing") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error


def _read_rows(file: SetFile, path: Path, reader: Any) -> list[tuple[Place, NewRow]]:
    columns = file.columns
    header: list[str] = next(reader, [])
    later = {
        name: LATER_COLUMNS[f"{file.table.name}.{column.name}"]
        for name, column in columns.items()
        if name not in header and f"{file.table.name}.{column.name}" in LATER_COLUMNS
    }
    given, header = len(header), [*header, *later]
    if sorted(header) != sorted(columns):
        raise InputError(
            f"{path}, line 1: columns {', '.join(header) or 'none'}; expected {', '.join(columns)}"
        )
    places, found = [], []
    for fields in reader:
        if len(fields) != given:
            raise InputError(
                f"{path}, line {reader.line_num}: {len(fields)} fields; expected {given}"
            )
        places.append(Place(path, reader.line_num))
        found.append([*fields, *later.values()])
    values = [
        _read_column(name, _parser(file.table, columns[name]), fields, places)
        for name, fields in zip(header, zip(*found, strict=True), strict=False)
    ]
    rows = [dict(zip(header, row, strict=True)) for row in zip(*values, strict=True)]
    return list(zip(places, rows, strict=True))


def _read_column(
    name: str, parse: Callable[[str], Any], fields: tuple[str, ...], places: list[Place]
) -> list[Any]:
    """Read one column's fields, each distinct one once: most columns say little that is new."""
    known: dict[str, Any] = {}
    for place, field in zip(places, fields, strict=True):
        if field not in known:
            try:
                known[field] = parse(field)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise place.error(name, field, str(error)) from error
    return [known[field] for field in fields]


def _text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return repr(value) if isinstance(value, float) else value


def _parser(table: Table, column: Column[Any]) -> Callable[[str], Any]:
    """Return the function that reads one column's fields."""
    check = _CHECKS.get(f"{table.name}.{column.name}") or _CHECKS.get(column.name)
    convert = _CONVERTERS.get(type(column.type), str)
    # A reference is a number inside and a key in the file.
    if column.name in REFERENCES:
        convert = str
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


def _stretch(text: str) -> None:
    # The pattern is ten times as fast as reading the numbers; what it refuses is then explained.
    if not _STRETCH.fullmatch(text):
        check_stretch(json.loads(text))


def _stretches(text: str) -> None:
    if _STRETCHES.fullmatch(text):
        return
    repeats = json.loads(text)
    if not isinstance(repeats, list):
        raise ValueError("not a JSON list")
    for repeat in repeats:
        check_stretch(repeat)


def _calibration(text: str) -> None:
    read_calibration(text)


def _operating_point(text: str) -> None:
    read_operating_point(text)


def _neighbours(text: str) -> None:
    decode_neighbours(text)


def _meter_tests(text: str) -> None:
    read_meter_tests(text)


def _times(text: str) -> None:
    check_integers(json.loads(text), "times")


def _not_negative(value: float) -> None:
    if value < 0:
        raise ValueError("negative")


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
    "neighbours": _neighbours,
    "document": _object,
    "inputs": _object,
    "settings": _object,
    "environment": _object,
    "foreign_leaves": _object,
    "unsupported": _object,
    "kernels": _object,
    "cost.kernels": _not_negative,
    "layers": _object,
    "reasons": _object,
    "host_time_s": _object,
    "limited": _operating_point,
    "hot": _operating_point,
    "facts": _object,
    "model_run.setting": _object,
    "tests": _meter_tests,
    "notes": _words,
    "calibration": _calibration,
    "flags": _words,
    "stretch": _stretch,
    "restore": _stretch,
    "repeats": _stretches,
    "times": _times,
    "cost_s": _not_negative,
    "position": _not_negative,
}
"""What a column's value must be, by `table.column` or by the column's name."""
