"""Tables: one declaration of columns makes the text, Markdown, CSV, JSON and HTML of rows.

A column has a name for machines, with its unit at the end (`time_s`), a title for people, or both:

    RUNS = Table(
        Column("model", title="model", get=lambda run: run.name),
        Column("time_s", title="time", unit="s", get=lambda run: run.time_s),
        quantity("energy_j", "J", lambda run: run.energy_j),
    )
    RUNS.documents(runs)  # JSON: one dict a row
    RUNS.csv(runs)  # of a quantity: energy_j, energy_j_low, energy_j_high
    RUNS.lines(runs)

Machines read values in base SI, people the same values with the prefix that suits them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote

from opdb.errors import InputError, OpdbError
from opdb.records import Json
from opdb.units import show, show_share

# Text for people: passwords are masked, what a terminal would obey escaped.

GAP = "  "


def escaped(text: str, *, keep: str = "") -> str:
    r"""Return a text with all that is not printable as Python writes it (`\x1b`), but for `keep`.

    Not printable are control characters, marks that turn the direction of writing, and blanks
    other than the space.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in keep else sign.encode("unicode_escape").decode()
        for sign in text
    )


def aligned(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield a table's lines: the first column and words to the left, numbers to the right."""
    from rich.cells import cell_len  # a wide character takes two columns

    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    left = [
        column == 0 or not all(_is_number(row[column]) for row in rows)
        for column in range(len(header))
    ]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        padded = (
            cell + gap if is_left else gap + cell
            for cell, gap, is_left in zip(line, gaps, left, strict=True)
        )
        yield GAP.join(padded).rstrip()


def _is_number(cell: object) -> bool:
    return str(cell)[:1].isdigit() or str(cell)[:1] in ("-", "–")


MASK = "***"

_USERINFO = re.compile(r"(://[^\s:@/?#]*):\S*@")
"""A user and password, as far as the last @: a password that nobody encoded may hold anything."""

_NO_HOST = re.compile(r"(://[^\s:@/?#\[]*):(?!\d+(?:\W|$)|\*\*\*)[^\s/?#'\"]+")
"""Matches anything that is not a port after the user or host, in a URL that lacks its @."""

_PARAMETER = re.compile(
    r"(?P<before>[?&\s'\"]|^)(?P<name>[\w.%-]+)=(?P<value>[^&\s]+?)(?=[\"',;:)\]}]*(?:[&\s]|$))"
)
_SECRET = re.compile("passw|passfile|passphrase|pwd|secret|token", re.IGNORECASE)


def masked(text: str) -> str:
    """Return a text with `***` for each password in a URL, whether it is a right one or not.

    It masks the password before the host, and the values of parameters named like a password,
    secret or token (`password`, `sslpassword`, `passfile`).
    """
    if "://" in text:
        text = _USERINFO.sub(rf"\1:{MASK}@", text)
        text = _NO_HOST.sub(rf"\1:{MASK}", text)
    return _PARAMETER.sub(_parameter, text) if "=" in text else text


def _parameter(found: re.Match[str]) -> str:
    if not _SECRET.search(unquote(found["name"])):
        return found[0]
    return f"{found['before']}{found['name']}={MASK}"


Row = TypeVar("Row")

SHARE = "share"
"""The unit of a share in 0..1, which people read as a percentage."""

RATIO = "ratio"
"""The unit of one value over another, which people read with three decimals."""

MISSING = "–"

QUANTITY = ("value", "low", "high")
"""The numbers of a quantity in JSON, beside its unit; `low` and `high` end the 95 % interval."""


class Ranged(Protocol):
    """A value with its 95 % interval, None where none is stated: of a cost, or a prediction."""

    @property
    def value(self) -> float: ...

    @property
    def interval(self) -> tuple[float, float] | None: ...


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One quantity of a row.

    Attributes:
        name: its name in JSON and CSV; without one, only people read the column.
        get: takes the value from a row, in base SI; None where it is missing.
        title: its heading for people; without one, only machines read the column.
        unit: the base unit of a number, which people read with a prefix; or `SHARE`, or `RATIO`.
        text: takes a row to what people read, where that is not the value with its unit.
        members: of a value that is a dict: its keys, which are columns of their own in CSV; "value"
            has the column's name.
    """

    name: str | None = None
    get: Callable[[Row], Json] = lambda _: None
    title: str | None = None
    unit: str | None = None
    text: Callable[[Row], object] | None = None
    members: tuple[str, ...] = ()

    def cell(self, row: Row) -> str:
        """Return what people read of a row; an en dash where the value is missing."""
        if self.text is not None:
            return str(self.text(row))
        value: Any = self.get(row)
        if value is None:
            return MISSING
        if self.unit == SHARE:
            return show_share(value)
        if self.unit == RATIO:
            return f"{value:.3f}"
        return str(value) if self.unit is None else show(value, self.unit)

    def flat(self, row: Row) -> dict[str, Json]:
        """Return the fields of a row in CSV: a dict's members apart, sizes as in 3x224x224.

        The texts of a list are one text.
        """
        value = self.get(row)
        assert self.name is not None
        if self.members:
            of = value or {}
            names = (self.name if m == "value" else f"{self.name}_{m}" for m in self.members)
            return dict(zip(names, map(of.get, self.members), strict=True))
        if self.name == "input_size":
            return {self.name: "x".join(map(str, value or ()))}
        return {self.name: "; ".join(value) if isinstance(value, list) else value}


class Table(Generic[Row]):
    """Columns in their order; JSON and CSV take those with a name, people those with a title."""

    def __init__(self, *columns: Column[Row]) -> None:
        self.columns = columns

    @property
    def fields(self) -> list[str]:
        return [column.name for column in self.columns if column.name is not None]

    @property
    def header(self) -> list[str]:
        return [column.title for column in self.columns if column.title is not None]

    def without(self, *titles: str) -> Table[Row]:
        return Table(*(column for column in self.columns if column.title not in titles))

    def document(self, row: Row) -> dict[str, Json]:
        return {column.name: column.get(row) for column in self.columns if column.name is not None}

    def documents(self, rows: Iterable[Row]) -> list[Json]:
        return [self.document(row) for row in rows]

    def flat(self, row: Row) -> dict[str, Json]:
        """Return a row as CSV has it: no value is a list or a dict."""
        of_columns = (column.flat(row) for column in self.columns if column.name is not None)
        return {name: value for fields in of_columns for name, value in fields.items()}

    def csv(self, rows: Iterable[Row]) -> str:
        """Return rows as CSV, the columns' names first; a missing value is empty."""
        flat = [self.flat(row) for row in rows]
        fields = flat[0] if flat else self.fields
        return csv_text(list(fields), flat)

    def cells(self, row: Row) -> list[str]:
        return [escaped(column.cell(row)) for column in self.columns if column.title is not None]

    def lines(self, rows: Iterable[Row]) -> Iterator[str]:
        return aligned(self.header, [self.cells(row) for row in rows])

    def html(self, rows: Iterable[Row]) -> str:
        head = _in_html("th", self.header)
        return f"<table>{head}{''.join(_in_html('td', self.cells(row)) for row in rows)}</table>"


@dataclass(frozen=True)
class Rows(Generic[Row]):
    table: Table[Row]
    rows: Sequence[Row]


class Report:
    """The answer to a question: a document for machines, text and tables for people.

    It prints as text, and shows as HTML in a notebook.
    """

    def to_dict(self) -> Json:
        raise NotImplementedError

    def blocks(self) -> Iterator[str | Rows[Any]]:
        raise NotImplementedError

    def check(self) -> None:
        """Raise what of the answer failed, or why a check that was asked for does not hold."""

    def rows(self) -> list[dict[str, Json]]:
        """Return the rows of the first table as data, quantities in base SI."""
        first = next((block for block in self.blocks() if isinstance(block, Rows)), None)
        return [] if first is None else [first.table.document(row) for row in first.rows]

    def to_frame(self) -> Any:
        """Return `rows()` as a pandas DataFrame; a dict in a row has a column a key: `a.b`."""
        try:
            from pandas import json_normalize
        except ModuleNotFoundError as error:
            raise InputError(
                "to_frame() needs pandas, which is not installed: pip install pandas; without it, "
                "rows() has the same as a list of dicts"
            ) from error
        return json_normalize(self.rows())

    def lines(self) -> Iterator[str]:
        for block in self.blocks():
            if isinstance(block, str):
                yield block
            else:
                yield from block.table.lines(block.rows)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(
            f"<p>{escape(escaped(block))}</p>"
            if isinstance(block, str)
            else block.table.html(block.rows)
            for block in self.blocks()
            if block
        )


@dataclass(frozen=True, repr=False)
class Listing(Report):
    """An answer that is made at once: as data, and as text and tables for people.

    `failure` says why a check that was asked for does not hold, or what of it failed.
    """

    document: Json
    parts: Sequence[str | Rows[Any]]
    failure: OpdbError | None = None

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def to_dict(self) -> Json:
        return self.document

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield from self.parts


def quantity(
    name: str,
    unit: str,
    get: Callable[[Row], Ranged | None],
    *,
    title: str | None = None,
    text: Callable[[Row], object] | None = None,
) -> Column[Row]:
    """Return the column of a quantity with its interval, of which people read the value.

    In CSV it is three: `time_s`, `time_s_low`, `time_s_high`.
    """

    def shown(row: Row) -> str:
        return show(None if (found := get(row)) is None else found.value, unit)

    return Column(
        name,
        lambda row: quantity_document(get(row), unit),
        title=title,
        text=text or shown,
        members=QUANTITY,
    )


def quantity_document(found: Ranged | None, unit: str) -> Json:
    if found is None:
        return None
    low, high = found.interval or (None, None)
    return {"value": found.value, "low": low, "high": high, "unit": unit}


def interval(unit: str, get: Callable[[Row], Ranged | None]) -> Column[Row]:
    """Return the column in which people read the interval of a quantity."""

    def text(row: Row) -> str:
        ends = (found := get(row)) and found.interval
        return " to ".join(show(end, unit) for end in ends) if ends else MISSING

    return Column(title="95 % interval", text=text)


def csv_text(fields: Collection[str], rows: Iterable[Mapping[str, Json]]) -> str:
    """Return rows as CSV, texts as a terminal may show them; a missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(fields), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({n: escaped(v) if isinstance(v, str) else v for n, v in row.items()})
    return text.getvalue()


def _in_html(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
