"""Tables as HTML: what people read, and beside it the value that machines sort and save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from opdb.layout import escaped
from opdb.records import Json
from opdb.tables import Column, Row, Table

Link = Callable[[Row], str]


def titled(table: Table[Row], titles: Mapping[str, str]) -> Table[Row]:
    """Return a table with other titles for named columns; an empty one keeps it from people.

    Columns without a name, and those that are not in `titles`, stay as they are.
    """

    def with_title(column: Column[Row]) -> Column[Row]:
        if column.name is None or column.name not in titles:
            return column
        return replace(column, title=titles[column.name] or None)

    return Table(*map(with_title, table.columns))


def table_html(
    name: str,
    caption: str,
    table: Table[Row],
    rows: Iterable[Row],
    link: Link[Row] | None = None,
) -> str:
    """Return a table with its caption, in a region of its own that can be scrolled.

    `name` is the element's id. `link` gives what the first cell of a row leads to. A cell whose
    text is not its value has the value in `data-v`, so that it can be sorted and saved.
    """
    shown = [column for column in table.columns if column.title is not None]
    head = "".join(_heading(column) for column in shown)
    body = "".join(f"<tr>{_cells(shown, row, link)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'
        f'<table id="{name}"><caption id="{name}-caption">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def specification(table: Table[Any]) -> list[dict[str, Json]]:
    """Return the columns that people read as data: the page fills such a table by itself."""
    return [
        {"name": column.name, "title": column.title, "unit": column.unit}
        for column in table.columns
        if column.title is not None
    ]


def safe(text: str) -> str:
    """Return a text from a database as HTML: nothing in it is markup, or turns the writing."""
    return escape(escaped(text))


def _heading(column: Column[Any]) -> str:
    name = f' data-name="{escape(column.name)}"' if column.name else ""
    return f'<th scope="col"{name}>{escape(column.title or "")}</th>'


def _cells(columns: Sequence[Column[Row]], row: Row, link: Link[Row] | None) -> str:
    cells = []
    for place, column in enumerate(columns):
        text, value = column.cell(row), column.get(row)
        inner = safe(text)
        if place == 0 and link is not None:
            inner = f'<a href="{escape(link(row))}">{inner}</a>'
        cells.append(f"<td{_value(value, text)}>{inner}</td>")
    return "".join(cells)


def _value(value: Json, text: str) -> str:
    """Return the attribute with a cell's value, where that is not what people read."""
    if value is None or isinstance(value, bool | dict):
        return ""
    if isinstance(value, list):
        value = (" " if value and isinstance(value[0], int | float) else "; ").join(map(str, value))
    if isinstance(value, int | float):
        return f' data-v="{value!r}"'
    return "" if value == text else f' data-v="{safe(value)}"'
