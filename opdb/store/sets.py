"""A published set as files: one CSV file a table, content keys and UUIDs in place of row numbers.

A missing value is an empty field. Rows are in an order that later measurements append to, so that
two versions of a set differ in few lines. What is read is checked, field by field: a set may come
from a stranger. `opdb.store.shorthand` says how the files are kept small.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table

from opdb.errors import InputError
from opdb.files import check_input
from opdb.store import schema
from opdb.store.fields import AllAtOnce, column_parser, parser, trusting_parser
from opdb.store.rows import NewRow

SET_FILE_BYTES = 4 * 2**30  # the largest file of a published set has 20 MB at most

_FIELD_BYTES = 16 * 1024 * 1024  # a run of many repeats outgrows the csv module's 128 KiB


LATER = {"after_others", "around", "ratios"}
"""Columns that the sets of release 0.1.0 do not have: there they are empty."""


@dataclass(frozen=True)
class SetFile:
    """One file of a set: the table it holds and the columns its rows are ordered by."""

    name: str
    table: Table
    order: tuple[str, ...]

    @property
    def columns(self) -> dict[str, Column[Any]]:
        """The table's columns by their names in the file, in order."""
        return schema.outside(self.table)


FILES = (
    SetFile("device.csv", schema.device, ("slug",)),
    SetFile("boards.csv", schema.board, ("uuid",)),
    SetFile("hosts.csv", schema.host, ("id",)),
    SetFile("campaigns.csv", schema.campaign, ("started_at", "id")),
    SetFile("configurations.csv", schema.configuration, ("kind", "key")),
    SetFile("workloads.csv", schema.workload, ("name", "phase", "dtype", "batch_size", "key")),
    SetFile("calls.csv", schema.call, ("workload", "number")),
    SetFile("calibrations.csv", schema.board_calibration, ("measured_at", "id")),
    SetFile("visits.csv", schema.visit, ("started_at", "id")),
    SetFile("host_visits.csv", schema.host_visit, ("started_at", "id")),
    SetFile("model_runs.csv", schema.model_run, ("started_at", "id")),
    SetFile("costs.csv", schema.cost, ("board", "configuration", "setting", "estimator")),
    SetFile("learned.csv", schema.learned, ("board",)),
    SetFile("profiles.csv", schema.profile, ("measured_at", "id")),
)
"""The files of a set that hold a table, each after those it refers to."""

FAULTS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The exceptions that checking a field raises."""


@dataclass(frozen=True)
class Columns:
    """A file's rows as columns of equal length, and the line that each row ends on."""

    path: Path
    lines: Sequence[int]
    values: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.lines)

    def error(self, row: int, column: str, found: str, why: object) -> InputError:
        """Return the error of one field: file, line, column, what was found and why it fails."""
        shown = found if len(found) <= 80 else found[:77] + "..."
        place = f"{self.path}, line {self.lines[row]}, column {column}"
        return InputError(f"{place}: {shown!r}: {why}")

    def converted(
        self, column: str, function: Callable[[Any], Any], all_at_once: AllAtOnce | None = None
    ) -> Columns:
        """Return the same with what a function makes of one column.

        Each distinct value is converted once, because most columns repeat few values. `all_at_once`
        does the same to a whole column, more quickly; it need not say why it refuses a value.

        Raises:
            InputError: the function refuses a value.
        """
        found, known = self.values[column], {}
        if all_at_once is not None:
            with suppress(*FAULTS):
                return self.having(**{column: all_at_once(found)})
        try:
            for value in dict.fromkeys(found):
                known[value] = function(value)
        except FAULTS as error:
            deep = isinstance(error, RecursionError)
            why = "nested too deeply" if deep else error
            raise self.error(found.index(value), column, str(value), why) from error
        return self.having(**{column: list(map(known.__getitem__, found))})

    def having(self, **columns: Sequence[Any]) -> Columns:
        """Return the same with some columns replaced or added."""
        return replace(self, values={**self.values, **columns})

    def only(self, chosen: Sequence[bool]) -> Columns:
        """Return the rows that are chosen."""
        if all(chosen):
            return self
        return Columns(
            self.path,
            list(compress(self.lines, chosen)),
            {name: list(compress(found, chosen)) for name, found in self.values.items()},
        )

    def rows(self) -> Iterator[NewRow]:
        """Yield each row by column name."""
        for fields in zip(*self.values.values(), strict=True):
            yield dict(zip(self.values, fields, strict=True))


def write_file(path: Path, header: Sequence[str], rows: Iterable[NewRow]) -> None:
    """Write one file of a set."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([_text(row[name]) for name in header])


def _text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return repr(value) if isinstance(value, float) else value


def read_file(file: SetFile, folder: Path, *, trusted: bool = False) -> Columns:
    """Read one file of a set, each field in its own type and, unless it is trusted, checked.

    Raises:
        InputError: it is missing, is not such a file, or a field does not hold what it should.
    """
    return parsed(file, read_fields(folder / file.name, list(file.columns)), trusted=trusted)


def read_fields(path: Path, columns: Collection[str]) -> Columns:
    """Read one file of a set, which has these columns, every field as it is written.

    Raises:
        InputError: it is missing, is not such a file, or a row has too many fields or too few.
    """
    csv.field_size_limit(_FIELD_BYTES)
    try:
        check_input(path, "a file of a set", SET_FILE_BYTES)
        with path.open(encoding="utf-8", newline="\n") as stream:
            return _read_fields(path, columns, stream)
    except FileNotFoundError as error:
        raise InputError(
            f"{path.parent} is not a published set: {path.name} is missing; where opdb export was "
            "interrupted, run it again"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error


def _read_fields(path: Path, columns: Collection[str], stream: Iterable[str]) -> Columns:
    rows = csv.reader(stream, strict=True)
    header = next(rows, [])
    if len(set(header)) < len(header):
        raise InputError(f"{path}, line 1: columns {', '.join(header)}; one is there twice")
    absent = [name for name in columns if name in LATER and name not in header]
    if sorted([*header, *absent]) != sorted(columns):
        expected = ", ".join(columns)
        raise InputError(
            f"{path}, line 1: columns {', '.join(header) or 'none'}; expected {expected}"
        )
    lines, found = [], []
    for fields in rows:
        if len(fields) != len(header):
            raise InputError(
                f"{path}, line {rows.line_num}: {len(fields)} fields; expected {len(header)}"
            )
        lines.append(rows.line_num)
        found.append(fields)
    values: Iterable[Sequence[str]] = zip(*found, strict=True) if found else [()] * len(header)
    empty: dict[str, Sequence[str]] = {name: [""] * len(lines) for name in absent}
    return Columns(path, lines, dict(zip(header, values, strict=True)) | empty)


def parsed(file: SetFile, fields: Columns, *, trusted: bool = False) -> Columns:
    """Return a file's fields, each in its own type and, unless they are trusted, checked.

    Raises:
        InputError: a field does not hold what it should.
    """
    all_at_once = trusting_parser if trusted else column_parser
    for name, column in file.columns.items():
        fields = fields.converted(name, parser(column), all_at_once(column))
    return fields
